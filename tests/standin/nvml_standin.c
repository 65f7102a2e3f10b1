/* A libnvidia-ml.so.1 that replays power traces, to drive the real pynvml in tests.
 *
 * Names, argument order, error numbers and struct layouts are those of NVIDIA's
 * published interface. Built by tests/standin.py with that soname.
 *
 * PROBCALC_STANDIN names the configuration: one record a line, fields separated by
 * tabs, the first its kind, the others key=value.
 *
 * clock   mode=virtual|real  origin_ns=(monotonic time of replay time 0)
 * device  name= uuid= pci= driver= vbios= trace=(csv: t_s,power_w[,temp_c[,sm_mhz]])
 *         period_ms=100 phase_ms=0 window_ms=100 average_ms=1000 (0: field 185 absent)
 *         usage=average|instant counter=full|part|none counter0_mj=0 limit_mw=300000
 *         arch=7 cc=80 mig=-1|0|1 instances=uuid,uuid module_mw=(CPU beside the GPU)
 *         samples=100 sample_ms=20 sample_base_us=1000000 (-1: the host's boot clock)
 *         throttle_from_s= throttle_to_s= throttle_fields=74,269 pids=1,2
 *         answers=all|identity|none
 * fault   gpu=0 call=(function, field:ID, field:ID:SCOPE or *) t0_s= t1_s= value=
 *         kind=error (value: NVML error)  freeze  set  scale  reset (counter: value on)
 *              lost (GPU_IS_LOST, and for ever on handles taken before its end)
 *              slow (value: ms that the call takes)
 *
 * Between rows power is linear, before and after them constant. At each update the
 * instant reading is the mean over the window before it, the average one over
 * average_ms. A full counter holds the integral up to the update; a part-time one
 * takes each period's window for the whole period.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
#define COUNT(x) (sizeof(x) / sizeof *(x))

enum {
  SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3,
  NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15,
  VERSION_MISMATCH = 25, UNKNOWN = 999
};
enum { MAGIC = 0x50524f42, LIST = 8, DEVICES = 16, FAULTS = 64 };
enum kind { ERROR, FREEZE, SET, SCALE, RESET, LOST, SLOW };
enum answers { ALL, IDENTITY, NONE };

typedef struct { double t, power, temperature, clock; } row;
typedef struct {
  char name[96], uuid[80], pci[32], driver[80], vbios[32];
  char instances[LIST][80];
  int n_instances, index, average_usage, has_counter, part_time, arch, cc, mig;
  int samples, answers, n_throttle, n_pids;
  int64_t period, phase, window, average, sample, base_us; /* ns, base in us */
  double counter0_mj, limit_mw, module_mw, throttle_from, throttle_to;
  unsigned throttle_fields[LIST], pids[LIST];
  row *rows;
  double *joules; /* integral of power from the first row to each */
  size_t n;
} device;
typedef struct { int gpu; enum kind kind; char call[80]; double t0, t1, value; } fault;
typedef struct { unsigned magic; device *board; int instance; int64_t taken; } handle;

static device boards[DEVICES];
static fault faults[FAULTS];
static int n_boards, n_faults, users, loaded, virtual_clock;
static int64_t clock_ns, origin_ns;

/* ---- time ------------------------------------------------------------------- */
static int64_t host_ns(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

EXPORT int64_t standin_now_ns(void) {
  return virtual_clock ? clock_ns : host_ns(CLOCK_MONOTONIC) - origin_ns;
}
EXPORT void standin_set_ns(int64_t ns) { clock_ns = ns; }
EXPORT void standin_advance_ns(int64_t ns) { clock_ns += ns; }

static double seconds(int64_t ns) { return (double)ns * 1e-9; }
static int64_t floor_to(int64_t t, int64_t step, int64_t phase) {
  int64_t k = (t - phase) / step;
  if ((t - phase) % step < 0) k--;
  return k * step + phase;
}

/* ---- configuration ----------------------------------------------------------- */
static const char *field(char **fields, int n, const char *key) {
  size_t length = strlen(key);
  for (int i = 1; i < n; i++)
    if (!strncmp(fields[i], key, length) && fields[i][length] == '=')
      return fields[i] + length + 1;
  return NULL;
}
static double number(char **fields, int n, const char *key, double otherwise) {
  const char *text = field(fields, n, key);
  return text ? strtod(text, NULL) : otherwise;
}
static int64_t ns_of_ms(char **fields, int n, const char *key, double otherwise) {
  return llround(number(fields, n, key, otherwise) * 1e6);
}
static void text(char *to, size_t size, char **fields, int n, const char *key,
                 const char *otherwise) {
  const char *found = field(fields, n, key);
  snprintf(to, size, "%s", found ? found : otherwise);
}
/* Position of a word among some; the first where the key is absent, -1 for others. */
static int word(char **fields, int n, const char *key, const char **words, int count) {
  const char *found = field(fields, n, key);
  if (!found) return 0;
  for (int i = 0; i < count; i++)
    if (!strcmp(found, words[i])) return i;
  return -1;
}
static int integers(char **fields, int n, const char *key, unsigned *to) {
  const char *at = field(fields, n, key);
  int count = 0;
  while (at && *at && count < LIST) {
    char *end;
    to[count++] = (unsigned)strtoul(at, &end, 10);
    at = *end == ',' ? end + 1 : NULL;
  }
  return count;
}

static int read_trace(device *d, const char *path) {
  FILE *file = fopen(path, "r");
  char line[512];
  size_t room = 0;
  if (!file) return -1;
  while (fgets(line, sizeof line, file)) {
    row r = {0, 0, 40, 1410};
    if (sscanf(line, "%lf,%lf,%lf,%lf", &r.t, &r.power, &r.temperature, &r.clock) < 2)
      continue; /* the header */
    if (d->n && r.t <= d->rows[d->n - 1].t) continue;
    if (d->n == room) {
      room = room ? 2 * room : 1024;
      d->rows = realloc(d->rows, room * sizeof *d->rows);
      d->joules = realloc(d->joules, room * sizeof *d->joules);
    }
    d->joules[d->n] = 0;
    if (d->n) {
      row *last = &d->rows[d->n - 1];
      d->joules[d->n] =
          d->joules[d->n - 1] + 0.5 * (last->power + r.power) * (r.t - last->t);
    }
    d->rows[d->n++] = r;
  }
  fclose(file);
  return d->n ? 0 : -1;
}

static int read_device(char **f, int n) {
  static const char *usages[] = {"average", "instant"};
  static const char *counters[] = {"full", "part", "none"};
  static const char *known[] = {"all", "identity", "none"};
  if (n_boards == DEVICES) return -1;
  device *d = &boards[n_boards];
  char uuid[80], pci[32], *rest = NULL, copy[LIST * 80];
  d->index = n_boards;
  snprintf(uuid, sizeof uuid, "GPU-0000000%d-0000-0000-0000-000000000000", n_boards);
  snprintf(pci, sizeof pci, "00000000:%02X:00.0", 7 + n_boards);
  text(d->name, sizeof d->name, f, n, "name", "Replayed board");
  text(d->uuid, sizeof d->uuid, f, n, "uuid", uuid);
  text(d->pci, sizeof d->pci, f, n, "pci", pci);
  text(d->driver, sizeof d->driver, f, n, "driver", "999.1");
  text(d->vbios, sizeof d->vbios, f, n, "vbios", "00.01.02.03.04");
  text(copy, sizeof copy, f, n, "instances", "");
  for (char *one = strtok_r(copy, ",", &rest); one && d->n_instances < LIST;
       one = strtok_r(NULL, ",", &rest))
    snprintf(d->instances[d->n_instances++], 80, "%s", one);
  d->period = ns_of_ms(f, n, "period_ms", 100);
  d->phase = ns_of_ms(f, n, "phase_ms", 0);
  d->window = ns_of_ms(f, n, "window_ms", 100);
  d->average = ns_of_ms(f, n, "average_ms", 1000);
  d->sample = ns_of_ms(f, n, "sample_ms", 20);
  d->average_usage = word(f, n, "usage", usages, 2) == 0;
  int counter = word(f, n, "counter", counters, 3);
  d->has_counter = counter != 2;
  d->part_time = counter == 1;
  d->counter0_mj = number(f, n, "counter0_mj", 0);
  d->limit_mw = number(f, n, "limit_mw", 300000);
  d->module_mw = number(f, n, "module_mw", -1);
  d->arch = (int)number(f, n, "arch", 7);
  d->cc = (int)number(f, n, "cc", 80);
  d->mig = (int)number(f, n, "mig", -1);
  d->samples = (int)number(f, n, "samples", 100);
  d->base_us = llround(number(f, n, "sample_base_us", 1000000));
  d->answers = word(f, n, "answers", known, 3);
  d->throttle_from = number(f, n, "throttle_from_s", 1e300);
  d->throttle_to = number(f, n, "throttle_to_s", 1e300);
  d->n_throttle = integers(f, n, "throttle_fields", d->throttle_fields);
  d->n_pids = integers(f, n, "pids", d->pids);
  const char *trace = field(f, n, "trace");
  if (counter < 0 || d->answers < 0 || d->period <= 0 || !trace ||
      read_trace(d, trace))
    return -1;
  n_boards++;
  return 0;
}

static int read_fault(char **f, int n) {
  static const char *kinds[] = {"error", "freeze", "set",  "scale",
                                "reset", "lost",   "slow"};
  if (n_faults == FAULTS) return -1;
  fault *x = &faults[n_faults];
  int kind = word(f, n, "kind", kinds, (int)COUNT(kinds));
  if (kind < 0) return -1;
  x->kind = (enum kind)kind;
  x->gpu = (int)number(f, n, "gpu", -1);
  text(x->call, sizeof x->call, f, n, "call", "*");
  x->t0 = number(f, n, "t0_s", 0);
  x->t1 = number(f, n, "t1_s", 1e300);
  x->value = number(f, n, "value", 0);
  n_faults++;
  return 0;
}

static int load(void) {
  static const char *modes[] = {"virtual", "real"};
  const char *path = getenv("PROBCALC_STANDIN");
  FILE *file = path ? fopen(path, "r") : NULL;
  char line[4096];
  int bad = 0;
  if (!file) return DRIVER_NOT_LOADED;
  while (!bad && fgets(line, sizeof line, file)) {
    char *fields[48], *rest = NULL;
    int n = 0;
    line[strcspn(line, "\r\n")] = 0;
    for (char *one = strtok_r(line, "\t", &rest); one && n < 48;
         one = strtok_r(NULL, "\t", &rest))
      fields[n++] = one;
    if (!n) continue;
    if (!strcmp(fields[0], "clock")) {
      virtual_clock = word(fields, n, "mode", modes, 2) == 0;
      const char *origin = field(fields, n, "origin_ns");
      origin_ns = origin ? strtoll(origin, NULL, 10) : host_ns(CLOCK_MONOTONIC);
    } else if (!strcmp(fields[0], "device")) {
      bad = read_device(fields, n);
    } else if (!strcmp(fields[0], "fault")) {
      bad = read_fault(fields, n);
    } else {
      bad = 1;
    }
  }
  fclose(file);
  return bad ? UNKNOWN : SUCCESS;
}

/* ---- the load and what a sensor makes of it ----------------------------------- */
static size_t row_before(const device *d, double t) {
  size_t low = 0, high = d->n - 1;
  while (low < high) {
    size_t middle = (low + high + 1) / 2;
    if (d->rows[middle].t <= t) low = middle;
    else high = middle - 1;
  }
  return low;
}
static double power(const device *d, double t) {
  size_t i = row_before(d, t);
  const row *a = &d->rows[i];
  if (t <= a->t || i + 1 == d->n) return a->power;
  return a->power + (a[1].power - a->power) * (t - a->t) / (a[1].t - a->t);
}
static double energy(const device *d, double t) {
  size_t i = row_before(d, t);
  const row *a = &d->rows[i];
  return d->joules[i] + 0.5 * (a->power + power(d, t)) * (t - a->t);
}
static double mean(const device *d, int64_t to, int64_t width) {
  double a = seconds(to - width), b = seconds(to);
  return width > 0 ? (energy(d, b) - energy(d, a)) / (b - a) : power(d, b);
}
static int64_t update(const device *d, int64_t t) {
  return floor_to(t, d->period, d->phase);
}

static int concerns(const fault *f, const device *d, const char *call) {
  return (f->gpu < 0 || f->gpu == d->index) &&
         (!strcmp(f->call, "*") || !strcmp(f->call, call));
}
static const fault *active(enum kind kind, const device *d, const char *call,
                           int64_t t) {
  for (int i = 0; i < n_faults; i++)
    if (faults[i].kind == kind && concerns(&faults[i], d, call) &&
        seconds(t) >= faults[i].t0 && seconds(t) < faults[i].t1)
      return &faults[i];
  return NULL;
}

/* Joules counted from replay time 0 on, with those of the CPU of a module. */
static double counted(const device *d, int64_t t) {
  int64_t first = update(d, 0), last = update(d, t);
  double sum = 0;
  if (d->part_time)
    for (int64_t at = first + d->period; at <= last; at += d->period)
      sum += mean(d, at, d->window) * seconds(d->period);
  else
    sum = energy(d, seconds(last)) - energy(d, seconds(first));
  return sum + (d->module_mw > 0 ? d->module_mw * 1e-3 * seconds(last - first) : 0);
}
static uint64_t counter_mj(const device *d, int64_t t) {
  static const char *call = "nvmlDeviceGetTotalEnergyConsumption";
  const fault *f = active(FREEZE, d, call, t);
  if (f) t = llround(f->t0 * 1e9);
  double start = d->counter0_mj, joules = counted(d, t);
  if ((f = active(RESET, d, call, t))) {
    start = f->value;
    joules -= counted(d, llround(f->t0 * 1e9));
  }
  if ((f = active(SET, d, call, t))) return (uint64_t)f->value;
  return (uint64_t)(start + llround(joules * 1000));
}
static unsigned power_mw(const device *d, const char *call, int64_t t, int average,
                         int module) {
  const fault *f = active(FREEZE, d, call, t);
  if (f) t = llround(f->t0 * 1e9);
  double w = mean(d, update(d, t), average ? d->average : d->window) * 1000;
  if (module) w += d->module_mw;
  if ((f = active(SCALE, d, call, t))) w *= f->value;
  if ((f = active(SET, d, call, t))) w = f->value;
  return (unsigned)lround(w);
}
static unsigned long long throttled_ns(const device *d, int64_t t) {
  double to = fmin(seconds(t), d->throttle_to);
  return (unsigned long long)llround(fmax(to - d->throttle_from, 0) * 1e9);
}

/* ---- entering a call ----------------------------------------------------------- */
static int enter(void) { return users ? SUCCESS : UNINITIALIZED; }
static void take(double ms) {
  int64_t ns = llround(ms * 1e6);
  struct timespec t = {ns / 1000000000, ns % 1000000000};
  if (virtual_clock) clock_ns += ns;
  else nanosleep(&t, NULL);
}
static int lost(const device *d, int64_t taken, int64_t t) {
  for (int i = 0; i < n_faults; i++) {
    const fault *f = &faults[i];
    if (f->kind == LOST && concerns(f, d, "*") && seconds(t) >= f->t0 &&
        (seconds(t) < f->t1 || seconds(taken) < f->t1))
      return 1;
  }
  return 0;
}
static int reached(void *given, const char *call, int identity, device **d) {
  handle *h = given;
  int bad = enter();
  if (bad) return bad;
  if (!h || h->magic != MAGIC) return INVALID_ARGUMENT;
  *d = h->board;
  if (h->board->answers == NONE || (h->board->answers == IDENTITY && !identity))
    return NOT_SUPPORTED;
  const fault *f = active(SLOW, h->board, call, standin_now_ns());
  if (f) take(f->value);
  int64_t t = standin_now_ns();
  if (lost(h->board, h->taken, t)) return GPU_IS_LOST;
  f = active(ERROR, h->board, call, t);
  return f ? (int)f->value : SUCCESS;
}
static int taken(device *d, int instance, void **to) {
  if (!to) return INVALID_ARGUMENT;
  int64_t t = standin_now_ns();
  if (lost(d, t, t)) return GPU_IS_LOST;
  handle *h = malloc(sizeof *h); /* as long as the test's process lives */
  *h = (handle){MAGIC, d, instance, t};
  *to = h;
  return SUCCESS;
}
static int put(char *to, unsigned size, const char *from) {
  if (!to) return INVALID_ARGUMENT;
  if (size < strlen(from) + 1) return INSUFFICIENT_SIZE;
  strcpy(to, from);
  return SUCCESS;
}

/* ---- library ------------------------------------------------------------------- */
EXPORT int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  int bad = loaded ? SUCCESS : load();
  if (bad) return bad;
  loaded = 1;
  users++;
  return SUCCESS;
}
EXPORT int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT int nvmlShutdown(void) {
  if (!users) return UNINITIALIZED;
  users--;
  return SUCCESS;
}
EXPORT const char *nvmlErrorString(int code) {
  static char says[48];
  snprintf(says, sizeof says, "stand-in error %d", code);
  return says;
}
EXPORT int nvmlSystemGetDriverVersion(char *to, unsigned size) {
  int bad = enter();
  return bad ? bad : put(to, size, n_boards ? boards[0].driver : "999.1");
}
EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
  int bad = enter();
  if (!bad) *count = (unsigned)n_boards;
  return bad;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **to) {
  int bad = enter();
  if (bad) return bad;
  return i < (unsigned)n_boards ? taken(&boards[i], -1, to) : INVALID_ARGUMENT;
}
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **to) {
  int bad = enter();
  if (bad) return bad;
  for (int i = 0; i < n_boards; i++) {
    if (!strcmp(boards[i].uuid, uuid)) return taken(&boards[i], -1, to);
    for (int k = 0; k < boards[i].n_instances; k++)
      if (!strcmp(boards[i].instances[k], uuid)) return taken(&boards[i], k, to);
  }
  return NOT_FOUND;
}
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **to) {
  int bad = enter();
  if (bad) return bad;
  for (int i = 0; i < n_boards; i++) {
    const char *full = boards[i].pci;
    /* A domain of four digits means the same as one of eight. */
    if (!strcasecmp(full, pci) || !strcasecmp(full + 4, pci))
      return taken(&boards[i], -1, to);
  }
  return NOT_FOUND;
}

/* ---- what a board is ------------------------------------------------------------ */
#define BOARD(identity)                              \
  device *d;                                         \
  int bad = reached(h, __func__, identity, &d);      \
  if (bad) return bad

EXPORT int nvmlDeviceGetIndex(void *h, unsigned *to) {
  BOARD(1);
  *to = (unsigned)d->index;
  return SUCCESS;
}
EXPORT int nvmlDeviceGetName(void *h, char *to, unsigned size) {
  BOARD(1);
  return put(to, size, d->name);
}
EXPORT int nvmlDeviceGetUUID(void *h, char *to, unsigned size) {
  BOARD(1);
  int instance = ((handle *)h)->instance;
  return put(to, size, instance < 0 ? d->uuid : d->instances[instance]);
}
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char id_text[32]; };
EXPORT int nvmlDeviceGetPciInfo_v3(void *h, struct pci *to) {
  BOARD(1);
  memset(to, 0, sizeof *to);
  snprintf(to->id_text, sizeof to->id_text, "%s", d->pci);
  return SUCCESS;
}
EXPORT int nvmlDeviceGetVbiosVersion(void *h, char *to, unsigned size) {
  BOARD(0);
  return put(to, size, d->vbios);
}
EXPORT int nvmlDeviceGetArchitecture(void *h, unsigned *to) {
  BOARD(0);
  *to = (unsigned)d->arch;
  return SUCCESS;
}
EXPORT int nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor) {
  BOARD(0);
  *major = d->cc / 10;
  *minor = d->cc % 10;
  return SUCCESS;
}
EXPORT int nvmlDeviceGetMigMode(void *h, unsigned *now, unsigned *pending) {
  BOARD(0);
  if (d->mig < 0) return NOT_SUPPORTED;
  *now = *pending = (unsigned)d->mig;
  return SUCCESS;
}
EXPORT int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *to) {
  BOARD(0);
  *to = d->mig == 1 ? 7 : 0;
  return SUCCESS;
}
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned i, void **to) {
  BOARD(0);
  return i < (unsigned)d->n_instances ? taken(d, (int)i, to) : NOT_FOUND;
}
EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *h, void **to) {
  BOARD(0);
  if (((handle *)h)->instance < 0) return INVALID_ARGUMENT;
  return taken(d, -1, to);
}
EXPORT int nvmlDeviceGetEccMode(void *h, unsigned *now, unsigned *pending) {
  BOARD(0);
  *now = *pending = 1;
  return SUCCESS;
}
EXPORT int nvmlDeviceGetPersistenceMode(void *h, unsigned *to) {
  BOARD(0);
  *to = 1;
  return SUCCESS;
}
EXPORT int nvmlDeviceGetEnforcedPowerLimit(void *h, unsigned *to) {
  BOARD(0);
  *to = (unsigned)d->limit_mw;
  return SUCCESS;
}
EXPORT int nvmlDeviceGetPowerManagementDefaultLimit(void *h, unsigned *to) {
  return nvmlDeviceGetEnforcedPowerLimit(h, to);
}
EXPORT int nvmlDeviceGetPowerManagementLimitConstraints(void *h, unsigned *low,
                                                        unsigned *high) {
  BOARD(0);
  *low = (unsigned)(d->limit_mw / 2);
  *high = (unsigned)d->limit_mw;
  return SUCCESS;
}

/* ---- what it draws --------------------------------------------------------------- */
static const row *held(const device *d) {
  return &d->rows[row_before(d, seconds(update(d, standin_now_ns())))];
}
EXPORT int nvmlDeviceGetTemperature(void *h, int sensor, unsigned *to) {
  BOARD(0);
  if (sensor) return INVALID_ARGUMENT;
  *to = (unsigned)lround(held(d)->temperature);
  return SUCCESS;
}
struct temperature { unsigned version; int sensor, value; };
EXPORT int nvmlDeviceGetTemperatureV(void *h, struct temperature *to) {
  BOARD(0);
  if (to->version != (sizeof *to | 1u << 24)) return VERSION_MISMATCH;
  to->value = (int)lround(held(d)->temperature);
  return SUCCESS;
}
EXPORT int nvmlDeviceGetClockInfo(void *h, int kind, unsigned *to) {
  BOARD(0);
  *to = kind == 2 ? 1215 : (unsigned)lround(held(d)->clock);
  return SUCCESS;
}
EXPORT int nvmlDeviceGetMaxClockInfo(void *h, int kind, unsigned *to) {
  BOARD(0);
  *to = kind == 2 ? 1215 : 1410;
  return SUCCESS;
}
EXPORT int nvmlDeviceGetPowerUsage(void *h, unsigned *to) {
  BOARD(0);
  *to = power_mw(d, __func__, standin_now_ns(), d->average_usage, 0);
  return SUCCESS;
}
EXPORT int nvmlDeviceGetTotalEnergyConsumption(void *h, unsigned long long *to) {
  BOARD(0);
  if (!d->has_counter) return NOT_SUPPORTED;
  *to = counter_mj(d, standin_now_ns());
  return SUCCESS;
}
struct process { unsigned pid; unsigned long long memory; unsigned gpu, compute; };
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *count,
                                                   struct process *to) {
  BOARD(0);
  unsigned room = to ? *count : 0;
  *count = (unsigned)d->n_pids;
  if (room < *count) return INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < *count; i++)
    to[i] = (struct process){d->pids[i], 1 << 20, ~0u, ~0u};
  return SUCCESS;
}

struct sample { unsigned long long stamp; union { double d; unsigned u; unsigned long long l; } value; };
EXPORT int nvmlDeviceGetSamples(void *h, int kind, unsigned long long after, int *type,
                                unsigned *count, struct sample *to) {
  BOARD(0);
  if (!(kind == 0 || (kind == 7 && d->module_mw >= 0)) || !d->samples)
    return NOT_SUPPORTED;
  int64_t now = standin_now_ns(), newest = floor_to(now, d->sample, 0);
  int64_t base = d->base_us;
  if (base < 0) base = (host_ns(CLOCK_BOOTTIME) - now) / 1000;
  unsigned n = 0, room = to ? *count : (unsigned)d->samples;
  for (int i = d->samples - 1; i >= 0 && n < room; i--) {
    int64_t at = newest - i * d->sample;
    unsigned long long stamp = (unsigned long long)(base + at / 1000);
    if (at < 0 || stamp <= after) continue;
    if (to) {
      double mw = mean(d, at, d->sample) * 1000 + (kind == 7 ? d->module_mw : 0);
      const fault *f = active(SET, d, __func__, at);
      to[n].stamp = stamp;
      to[n].value.l = 0;
      to[n].value.u = (unsigned)lround(f ? f->value : mw);
    }
    n++;
  }
  *type = 1;
  *count = n;
  return n ? SUCCESS : NOT_FOUND;
}

struct value {
  unsigned id, scope;
  long long stamp, latency;
  int type, code;
  union { double d; unsigned u; unsigned long long l; } value;
};
static int answered(const device *d, struct value *v, int64_t t) {
  char call[32], scoped[48];
  snprintf(call, sizeof call, "field:%u", v->id);
  snprintf(scoped, sizeof scoped, "field:%u:%u", v->id, v->scope);
  const fault *f = active(ERROR, d, call, t);
  if (!f) f = active(ERROR, d, scoped, t);
  if (f) return (int)f->value;
  int module = v->scope == 1;
  if (v->scope > 1 || (module && d->module_mw < 0)) return NOT_SUPPORTED;
  v->type = 1;
  if (v->id == 185 && d->average > 0) {
    v->value.u = power_mw(d, call, t, 1, module);
  } else if (v->id == 186) {
    v->value.u = power_mw(d, call, t, 0, module);
  } else if (v->id == 190) {
    v->value.u = (unsigned)(d->limit_mw + (module ? 2 * d->module_mw : 0));
  } else if (v->id == 83 && d->has_counter) {
    v->type = 3;
    v->value.l = counter_mj(d, t);
  } else {
    for (int i = 0; i < d->n_throttle; i++)
      if (d->throttle_fields[i] == v->id) {
        v->type = 3;
        v->value.l = i ? 0 : throttled_ns(d, t);
        return SUCCESS;
      }
    return NOT_SUPPORTED;
  }
  return SUCCESS;
}
EXPORT int nvmlDeviceGetFieldValues(void *h, int count, struct value *values) {
  BOARD(0);
  if (count < 1) return INVALID_ARGUMENT;
  int64_t t = standin_now_ns();
  for (int i = 0; i < count; i++) values[i].code = answered(d, &values[i], t);
  return SUCCESS;
}
