/* The timelines of the events engine: when devices step, meet and exchange in one round of the
   network. engines/events computes the same in Python, from which every time must not differ by a
   bit: so there are only sums here, and no product that a compiler could contract with one.

   Functions return the number of events, or -1 if they or the queue do not fit. They have changed
   the devices' state then. */

#define NEVER INFINITY

/* As in event_list.py. */
enum { ROUND, STEP, SEND, EXCHANGE, RECEIVE, UNDO };

/* What devices are due for. Of the same time the lower number comes first. */
enum { COMPUTING, EXCHANGING, WAITING };
enum { ARRIVES, STEPS, SENDS };

/* An entry of the queue: `what` · devices + rank breaks ties. */
typedef struct {
    double due;
    int64_t tie;
} Due;

/* One round of the network. */
typedef struct {
    int64_t devices;
    double begin, end, seconds;
    /* By device, and by rank: the order of devices that are due at the same time. */
    const int64_t *rank, *order;
    const double *step_seconds;
    const uint8_t *active; /* NULL: all */
    /* The neighbours of device i are entries first[i] to first[i + 1] - 1. */
    const int64_t *first, *neighbour;
    const double *exchange_seconds;
    /* Batteries; the last is 0 if there are none. */
    double full, step_joules, message_joules, charging_seconds;
    /* Results: the events, and the exchanges that were cut. */
    int64_t capacity, count;
    double *time;
    int64_t *kind, *a, *b, *a_count, *b_count;
    int64_t cuts, *cut_a, *cut_b;
    double *cut_seconds;
    /* The queue, a binary heap. */
    int64_t queue_capacity, queued;
    Due *queue;
    int64_t full_up; /* 1 if something did not fit */
} EventRound;

/* The devices in rounds of their own, in pairs: timeline.py. */
typedef struct {
    int64_t *phase;
    double *due, *since;
    int64_t *partner, *rounds;
    double *joules;
    const double *wait_seconds;
    int64_t waiting;
    const int64_t *waits; /* the devices that wait, those first that have waited longest */
} PairDevices;

/* The devices that step while messages travel: background.py. */
typedef struct {
    double *step_due, *arrival_due, *began;
    int64_t *partner, *steps, *steps_since, *messages;
    double *joules, *away_until;
    uint64_t *bits; /* random bits by device */
    int64_t both, wanted, max_exchanges;
} BackgroundDevices;

static int earlier(Due x, Due y) { return x.due < y.due || (x.due == y.due && x.tie < y.tie); }

static void queue_push(EventRound *now, double due, int64_t what, int64_t device) {
    if (due > now->end) return;
    if (now->queued == now->queue_capacity) {
        now->full_up = 1;
        return;
    }
    Due entry = {due, what * now->devices + now->rank[device]};
    int64_t at = now->queued++;
    while (at > 0 && earlier(entry, now->queue[(at - 1) / 2])) {
        now->queue[at] = now->queue[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    now->queue[at] = entry;
}

static Due queue_pop(EventRound *now) {
    Due first = now->queue[0];
    Due last = now->queue[--now->queued];
    int64_t at = 0;
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= now->queued) break;
        if (child + 1 < now->queued && earlier(now->queue[child + 1], now->queue[child])) child++;
        if (!earlier(now->queue[child], last)) break;
        now->queue[at] = now->queue[child];
        at = child;
    }
    now->queue[at] = last;
    return first;
}

static void event(EventRound *now, double time, int64_t kind, int64_t a, int64_t b,
                  int64_t a_count, int64_t b_count) {
    if (now->count == now->capacity) {
        now->full_up = 1;
        return;
    }
    int64_t k = now->count++;
    now->time[k] = time;
    now->kind[k] = kind;
    now->a[k] = a;
    now->b[k] = b;
    now->a_count[k] = a_count;
    now->b_count[k] = b_count;
}

static int linked(const EventRound *now, int64_t i, int64_t j) {
    for (int64_t k = now->first[i]; k < now->first[i + 1]; k++)
        if (now->neighbour[k] == j) return 1;
    return 0;
}

static void cut(EventRound *now, int64_t i, int64_t j, double seconds) {
    now->cut_a[now->cuts] = i;
    now->cut_b[now->cuts] = j;
    now->cut_seconds[now->cuts++] = seconds;
}

/* Return how long a device is away that has so many joules left, which are set to a full battery
   then. */
static double seconds_away(const EventRound *now, double *joules) {
    if (now->charging_seconds == 0 || *joules > 0) return 0;
    *joules = now->full;
    return now->charging_seconds;
}

/* Devices in rounds of their own. */

static void push_device(EventRound *now, const PairDevices *has, int64_t device) {
    queue_push(now, has->due[device], has->phase[device], device);
}

static void end_own_round(EventRound *now, PairDevices *has, double time, int64_t device,
                          int sent) {
    has->phase[device] = COMPUTING;
    has->partner[device] = -1;
    has->rounds[device]++;
    has->joules[device] -= now->step_joules;
    if (sent) has->joules[device] -= now->message_joules;
    double away = seconds_away(now, &has->joules[device]);
    has->due[device] = time + away + now->step_seconds[device];
}

/* Begin an exchange with the neighbour that has waited longest. Return 0 if there is none. */
static int meet(EventRound *now, PairDevices *has, double time, int64_t device) {
    int64_t best = -1;
    double seconds = 0;
    for (int64_t k = now->first[device]; k < now->first[device + 1]; k++) {
        int64_t other = now->neighbour[k];
        if (has->phase[other] != WAITING) continue;
        if (best >= 0) {
            if (has->since[other] > has->since[best]) continue;
            if (has->since[other] == has->since[best] && now->rank[other] > now->rank[best])
                continue;
        }
        best = other;
        seconds = now->exchange_seconds[k];
    }
    if (best < 0) return 0;
    has->partner[device] = best;
    has->partner[best] = device;
    has->phase[device] = has->phase[best] = EXCHANGING;
    has->since[device] = has->since[best] = time;
    has->due[device] = has->due[best] = time + seconds;
    push_device(now, has, device < best ? device : best);
    return 1;
}

int64_t pair_events(EventRound *now, PairDevices *has) {
    for (int64_t i = 0; i < now->devices; i++) {
        int64_t j = has->partner[i];
        if (i >= j || linked(now, i, j)) continue;
        cut(now, i, j, now->begin - has->since[i]);
        event(now, now->begin, ROUND, i, -1, has->rounds[i], 0);
        end_own_round(now, has, now->begin, i, 0);
        event(now, now->begin, ROUND, j, -1, has->rounds[j], 0);
        end_own_round(now, has, now->begin, j, 0);
    }
    for (int64_t i = 0; i < now->devices; i++) {
        if (now->active && !now->active[i]) has->due[i] += now->seconds;
        push_device(now, has, i);
    }
    for (int64_t k = 0; k < has->waiting; k++)
        if (has->phase[has->waits[k]] == WAITING) meet(now, has, now->begin, has->waits[k]);
    while (now->queued && !now->full_up) {
        Due next = queue_pop(now);
        int64_t phase = next.tie / now->devices;
        int64_t i = now->order[next.tie - phase * now->devices];
        if (next.due != has->due[i] || phase != has->phase[i]) continue; /* it has met a device */
        if (phase == EXCHANGING) {
            int64_t j = has->partner[i];
            if (i > j) continue;
            event(now, next.due, ROUND, i, j, has->rounds[i], has->rounds[j]);
            end_own_round(now, has, next.due, i, 1);
            end_own_round(now, has, next.due, j, 1);
            push_device(now, has, i);
            push_device(now, has, j);
        } else if (phase == WAITING) {
            event(now, next.due, ROUND, i, -1, has->rounds[i], 0);
            end_own_round(now, has, next.due, i, 0);
            push_device(now, has, i);
        } else if (!meet(now, has, next.due, i)) {
            has->phase[i] = WAITING;
            has->since[i] = next.due;
            has->due[i] = next.due + has->wait_seconds[i];
            push_device(now, has, i);
        }
    }
    return now->full_up ? -1 : now->count;
}

/* Devices that step while messages travel. */

static uint64_t finalise(uint64_t h) {
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdu;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53u;
    return h ^ (h >> 33);
}

/* Return the upper 64 bits of x · count, for a count of less than 32 bits. */
static int64_t scaled(uint64_t x, uint64_t count) {
    return (int64_t)(((x >> 32) * count + (((x & 0xffffffff) * count) >> 32)) >> 32);
}

static int is_free(const BackgroundDevices *has, int64_t device, double time) {
    return !(has->both && has->partner[device] >= 0) && has->away_until[device] <= time;
}

static void send(EventRound *now, BackgroundDevices *has, double time, int64_t i, int64_t j) {
    has->partner[i] = j;
    has->steps_since[i] = 0;
    event(now, time, SEND, i, -1, has->messages[i], 0);
    has->messages[i]++;
    has->joules[i] -= now->message_joules;
}

/* Let a device send to a random neighbour, if it is free and there is one. */
static void begin_exchange(EventRound *now, BackgroundDevices *has, double time, int64_t i) {
    if (has->partner[i] >= 0 || has->away_until[i] > time) return;
    uint64_t count = 0;
    for (int64_t k = now->first[i]; k < now->first[i + 1]; k++)
        count += (uint64_t)is_free(has, now->neighbour[k], time);
    if (count == 0) return;
    has->bits[i] = finalise(has->bits[i]);
    int64_t left = scaled(has->bits[i], count);
    int64_t chosen = now->first[i];
    while (!is_free(has, now->neighbour[chosen], time) || left-- > 0) chosen++;
    int64_t j = now->neighbour[chosen];
    has->began[i] = time;
    has->arrival_due[i] = time + now->exchange_seconds[chosen];
    send(now, has, time, i, j);
    if (has->both) send(now, has, time, j, i);
    queue_push(now, has->arrival_due[i], ARRIVES, i);
}

static void undo(EventRound *now, BackgroundDevices *has, int64_t device) {
    has->partner[device] = -1;
    event(now, now->begin, UNDO, device, -1, has->messages[device], 0);
}

static void end_step(EventRound *now, BackgroundDevices *has, double time, int64_t i) {
    event(now, time, STEP, i, -1, has->steps[i], 0);
    has->steps[i]++;
    has->steps_since[i]++;
    has->joules[i] -= now->step_joules;
    double away = seconds_away(now, &has->joules[i]);
    if (away > 0) has->away_until[i] = time + away;
    has->step_due[i] = time + away + now->step_seconds[i];
    queue_push(now, has->step_due[i], STEPS, i);
    if (has->steps_since[i] >= has->wanted) queue_push(now, time, SENDS, i);
}

static void end_exchange(EventRound *now, BackgroundDevices *has, double time, int64_t i) {
    int64_t j = has->partner[i];
    event(now, time, has->both ? EXCHANGE : RECEIVE, i, j, has->steps[i], has->steps[j]);
    has->arrival_due[i] = NEVER;
    has->partner[i] = -1;
    if (has->both) has->partner[j] = -1;
    if (has->max_exchanges && (time - has->began[i]) * has->max_exchanges >= now->seconds)
        queue_push(now, time, SENDS, i);
}

int64_t background_events(EventRound *now, BackgroundDevices *has) {
    for (int64_t i = 0; i < now->devices; i++) {
        int64_t j = has->partner[i];
        if (has->arrival_due[i] == NEVER || linked(now, i, j)) continue;
        cut(now, i, j, now->begin - has->began[i]);
        undo(now, has, i);
        if (has->both) undo(now, has, j);
        has->arrival_due[i] = NEVER;
    }
    for (int64_t i = 0; i < now->devices; i++) {
        if (now->active && !now->active[i]) has->step_due[i] += now->seconds;
        queue_push(now, has->step_due[i], STEPS, i);
        queue_push(now, has->arrival_due[i], ARRIVES, i);
    }
    while (now->queued && !now->full_up) {
        Due next = queue_pop(now);
        int64_t what = next.tie / now->devices;
        int64_t i = now->order[next.tie - what * now->devices];
        if (what == ARRIVES)
            end_exchange(now, has, next.due, i);
        else if (what == STEPS)
            end_step(now, has, next.due, i);
        else if (has->steps_since[i] >= has->wanted) /* else a neighbour was faster */
            begin_exchange(now, has, next.due, i);
    }
    return now->full_up ? -1 : now->count;
}

/* Neighbours by device, from links a–b: first those of which a device is the a. `number` is that of
   the link. `next` is scratch of one entry per device. */
void neighbours(int64_t devices, int64_t links, const int64_t *a, const int64_t *b, int64_t *first,
                int64_t *neighbour, int64_t *number, int64_t *next) {
    memset(first, 0, (size_t)(devices + 1) * sizeof(int64_t));
    for (int64_t k = 0; k < links; k++) {
        first[a[k] + 1]++;
        first[b[k] + 1]++;
    }
    for (int64_t i = 0; i < devices; i++) first[i + 1] += first[i];
    memcpy(next, first, (size_t)devices * sizeof(int64_t));
    for (int64_t k = 0; k < links; k++) {
        neighbour[next[a[k]]] = b[k];
        number[next[a[k]]++] = k;
    }
    for (int64_t k = 0; k < links; k++) {
        neighbour[next[b[k]]] = a[k];
        number[next[b[k]]++] = k;
    }
}

/* The wave of each event, as in waves.py; `following` is scratch of zeros, one entry per device.
   Return the number of waves. `turn` is the place of the event's kind in a cycle of kinds. */
int64_t wave_numbers(int64_t events, const int64_t *a, const int64_t *b, const int64_t *turn,
                     int64_t cycle, int64_t *following, int64_t *wave) {
    int64_t waves = 0;
    for (int64_t k = 0; k < events; k++) {
        int64_t own = following[a[k]];
        if (b[k] >= 0 && following[b[k]] > own) own = following[b[k]];
        own += (turn[k] - own % cycle + cycle) % cycle;
        wave[k] = own;
        following[a[k]] = own + 1;
        if (b[k] >= 0) following[b[k]] = own + 1;
        if (own + 1 > waves) waves = own + 1;
    }
    return waves;
}

/* Sample numbers by row, drawn from the row's own samples: as splits.py does with draws.py. `bits`
   are random bits by row, `first` and `size` say where its samples are in `index`. */
void sample_numbers(int64_t rows, int64_t batch, const uint64_t *bits, const int64_t *first,
                    const int64_t *size, const int64_t *index, int64_t *to) {
    const uint64_t golden = 0x9e3779b97f4a7c15u;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < batch; k++) {
            uint64_t drawn = finalise(bits[i] ^ ((uint64_t)k * golden + golden));
            uint64_t position = ((drawn >> 32) * (uint64_t)size[i]) >> 32;
            to[i * batch + k] = index[first[i] + (int64_t)position];
        }
}

/* Rows are in no order in memory: the next ones are fetched while one is copied. */
enum { ROWS_AHEAD = 2 };

/* Copy rows `index` of `from`. */
void get_rows(int64_t rows, int64_t bytes, const char *from, const int64_t *index, char *to) {
    for (int64_t i = 0; i < rows; i++) {
        int64_t ahead = i + ROWS_AHEAD < rows ? i + ROWS_AHEAD : i;
        prefetch(from + index[ahead] * bytes, (size_t)bytes);
        memcpy(to + i * bytes, from + index[i] * bytes, (size_t)bytes);
    }
}

/* Set rows `index` of `to`. */
void set_rows(int64_t rows, int64_t bytes, const char *from, const int64_t *index, char *to) {
    for (int64_t i = 0; i < rows; i++) {
        int64_t ahead = i + ROWS_AHEAD < rows ? i + ROWS_AHEAD : i;
        prefetch(to + index[ahead] * bytes, (size_t)bytes);
        memcpy(to + index[i] * bytes, from + i * bytes, (size_t)bytes);
    }
}

/* Set rows `index` of `to` to the same rows of `from`. */
void copy_rows(int64_t rows, int64_t bytes, const char *from, const int64_t *index, char *to) {
    for (int64_t i = 0; i < rows; i++) {
        int64_t ahead = i + ROWS_AHEAD < rows ? i + ROWS_AHEAD : i;
        prefetch(from + index[ahead] * bytes, (size_t)bytes);
        prefetch(to + index[ahead] * bytes, (size_t)bytes);
        memcpy(to + index[i] * bytes, from + index[i] * bytes, (size_t)bytes);
    }
}

/* Move rows a[k] and b[k] of `x` by half of the difference of the same rows of `sent`, towards each
   other. No row occurs twice. */
#define AVERAGE_PAIRS(type)                                                                        \
    void average_pairs_##type(int64_t pairs, int64_t columns, const int64_t *a, const int64_t *b,  \
                              const type *sent, type *x) {                                         \
        size_t bytes = (size_t)columns * sizeof(type);                                             \
        for (int64_t k = 0; k < pairs; k++) {                                                      \
            int64_t ahead = k + 1 < pairs ? k + 1 : k;                                             \
            prefetch((const char *)(sent + a[ahead] * columns), bytes);                            \
            prefetch((const char *)(sent + b[ahead] * columns), bytes);                            \
            prefetch((const char *)(x + a[ahead] * columns), bytes);                               \
            prefetch((const char *)(x + b[ahead] * columns), bytes);                               \
            const type *restrict from_a = sent + a[k] * columns;                                   \
            const type *restrict from_b = sent + b[k] * columns;                                   \
            type *restrict at_a = x + a[k] * columns;                                              \
            type *restrict at_b = x + b[k] * columns;                                              \
            for (int64_t c = 0; c < columns; c++) {                                                \
                type half = (type)0.5 * (from_b[c] - from_a[c]);                                   \
                at_a[c] += half;                                                                   \
                at_b[c] -= half;                                                                   \
            }                                                                                      \
        }                                                                                          \
    }

AVERAGE_PAIRS(float)
AVERAGE_PAIRS(double)
