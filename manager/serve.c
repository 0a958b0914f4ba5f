/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, the core loop and closing; see serve.h. */
#include "manager/serve.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/size.h"
#include "manager/adopt.h"
#include "manager/bell.h"
#include "manager/channel.h"
#include "manager/control.h"
#include "manager/digest.h"
#include "manager/direct.h"
#include "manager/directory.h"
#include "manager/drive.h"
#include "manager/feed.h"
#include "manager/fence.h"
#include "manager/guard.h"
#include "manager/kv.h"
#include "manager/layer_count.h"
#include "manager/measure.h"
#include "manager/metrics.h"
#include "manager/mirror.h"
#include "manager/persist.h"
#include "manager/pool.h"
#include "manager/prepare.h"
#include "manager/pressure.h"
#include "manager/reservation.h"
#include "manager/residency.h"
#include "manager/scrub.h"
#include "manager/session.h"
#include "manager/settings.h"
#include "manager/state.h"
#include "manager/store.h"
#include "manager/survey.h"
#include "manager/use_import.h"
#include "manager/vram.h"
#include "manager/warm.h"
#include "manager/worker.h"
#include "policy/policy.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define READ_BYTES_IN_FLIGHT (32ull << 20)
#define READS_IN_FLIGHT_MOST 16u
#define STOP_DRAIN_NS (5 * CNRE_NS_PER_S) /* a stop waits for reads, but not for a drive that hangs */

/* ---- descriptors that only wake the loop ---- */

struct wakers {
	struct loop_source signals, worker, writer, loader;
	struct manager *manager;
};

static struct wakers wakers;

static void signal_arrived(struct loop_source *source, uint32_t events)
{
	struct signalfd_siginfo info;

	(void)events;
	if (read(source->fd, &info, sizeof info) != (ssize_t)sizeof info)
		return;
	if (info.ssi_signo == SIGHUP)
		return; /* nothing to reload yet, and nothing to die of: a closing terminal is no reason to stop serving */
	cnre_log(CNRE_LOG_NOTICE, "signal %u: stopping", info.ssi_signo);
	wakers.manager->stopping = 1;
}

static void worker_finished(struct loop_source *source, uint32_t events)
{
	(void)source;
	(void)events;
	(void)worker_reap(wakers.manager->worker);
}

static void writer_finished(struct loop_source *source, uint32_t events)
{
	(void)source;
	(void)events;
	(void)worker_reap(wakers.manager->writer);
}

static void loader_finished(struct loop_source *source, uint32_t events)
{
	(void)source; /* the turn reaps the loader in any case */
	(void)events;
}

static int open_signals(void)
{
	sigset_t wanted;
	int fd;

	(void)sigemptyset(&wanted);
	(void)sigaddset(&wanted, SIGTERM);
	(void)sigaddset(&wanted, SIGINT);
	(void)sigaddset(&wanted, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &wanted, NULL) < 0)
		return -errno;
	fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

static int watch_wakers(struct manager *manager)
{
	int r = open_signals();

	if (r < 0)
		return r;
	wakers.manager = manager;
	wakers.signals = (struct loop_source){.fd = r, .ready = signal_arrived};
	wakers.worker = (struct loop_source){.fd = worker_event_fd(manager->worker), .ready = worker_finished};
	wakers.writer = (struct loop_source){.fd = worker_event_fd(manager->writer), .ready = writer_finished};
	r = loop_add(manager->loop, &wakers.signals, EPOLLIN);
	if (r == 0)
		r = loop_add(manager->loop, &wakers.worker, EPOLLIN);
	if (r == 0)
		r = loop_add(manager->loop, &wakers.writer, EPOLLIN);
	if (r == 0 && loader_ring(manager->loader) == NULL) {
		wakers.loader = (struct loop_source){.fd = loader_event_fd(manager->loader), .ready = loader_finished};
		r = loop_add(manager->loop, &wakers.loader, EPOLLIN);
	}
	return r; /* serve_close closes what there is */
}

/* ---- callbacks between the parts ---- */

static void ring_completion(void *context, uint64_t user_data, int result)
{
	struct manager *manager = context;

	if (user_data == LOOP_RING_USER_DATA)
		loop_ring_fired(manager->loop);
	else
		bell_ring_fired(manager->bell, user_data, result);
}

static void count_pool_bytes(struct manager *manager, uint64_t bytes)
{
	cnre_counter_set(&manager->counters->pool_bytes, bytes);
	cnre_counter_set(&manager->page->pool_bytes, bytes);
}

/* The page says how many were made; a number that was used must not come again (R18). */
static uint32_t segments_made(const struct manager *manager)
{
	/* [V3] relaxed: our own word, or a dead manager's. */
	return atomic_load_explicit(&manager->page->segment_count, memory_order_relaxed);
}

static void say_alive(struct manager *manager)
{
	if (watchdog_tick(&manager->watchdog, cnre_clock_now_ns()))
		store_notify(manager->store, WATCHDOG_SIGN);
}

static void memory_added(void *context, uint32_t segment, const struct cnre_segment *memory)
{
	struct manager *manager = context;

	(void)loader_add_memory(manager->loader, memory->base, memory->bytes,
				segment); /* unregistered memory is slower, not wrong */
	count_pool_bytes(manager, cnre_counter_get(&manager->counters->pool_bytes) + memory->bytes);
	say_alive(manager); /* growing by 100 GiB is one turn; each segment of it a second at most */
	if (segment >= segments_made(manager))
		/* [V1] relaxed: a hint for tools; clients ask over the socket. */
		atomic_store_explicit(&manager->page->segment_count, segment + 1, memory_order_relaxed);
	if (!manager->is_adopting)
		persist_segment(manager, segment, memory);
}

static void memory_removed(void *context, uint32_t segment, const struct cnre_segment *memory)
{
	struct manager *manager = context;

	count_pool_bytes(manager, cnre_counter_get(&manager->counters->pool_bytes) - memory->bytes);
	if (manager->loader != NULL) /* closed first at the end, so that no read outlives its memory */
		loader_remove_memory(manager->loader, segment);
	persist_forget_segment(manager, segment);
}

static void pool_note(void *context, const char *line)
{
	(void)context;
	cnre_log(CNRE_LOG_WARNING, "memory: %s", line);
}

/* ---- opening ---- */

static int say(char *message, int error, const char *what)
{
	(void)snprintf(message, SERVE_MESSAGE_BYTES, "%s: %s", what, strerror(-error));
	return error;
}

int serve_add_catalog(struct manager *manager, struct model_catalog *catalog, struct served_model *checkpoint,
		      char message[SERVE_MESSAGE_BYTES])
{
	struct served_model *model = &manager->model[manager->model_count];

	if (manager->model_count == MANAGER_MODELS_MAX) {
		(void)snprintf(message, SERVE_MESSAGE_BYTES, "more than %u models and views: start a second manager",
			       MANAGER_MODELS_MAX);
		return -E2BIG;
	}
	model->catalog = catalog;
	model->checkpoint = checkpoint;
	model->number = manager->model_count++;
	model->first_owner = manager->owner_count;
	manager->owner_count += catalog->object_count;
	manager->slab_bytes_total += catalog->slab_bytes_total;
	if (manager->window_bytes < catalog->slab_bytes_max)
		manager->window_bytes = catalog->slab_bytes_max;
	return 0;
}

int serve_add_model(struct manager *manager, const struct model_source *source, char message[SERVE_MESSAGE_BYTES])
{
	struct model_catalog *catalog;
	int r = model_catalog_open_source(&catalog, source, message);

	if (r < 0)
		return r;
	r = serve_add_catalog(manager, catalog, NULL, message);
	if (r < 0)
		(void)model_catalog_close(catalog);
	return r;
}

static int create_own_segment(struct cnre_segment *segment, const char *name, enum cnre_segment_kind kind,
			      uint64_t bytes)
{
	int r;

	bytes = cnre_size_align_up(bytes, CNRE_PAGE_BYTES);
	r = cnre_segment_create(segment, name, bytes, CNRE_BACKING_4K, -1, 0);
	if (r < 0)
		return r;
	cnre_segment_fill_header(segment->base, kind, bytes);
	cnre_segment_publish(segment->base);
	return 0;
}

static int open_own_segments(struct manager *manager, char *message)
{
	int r = create_own_segment(&manager->page_segment, "cnre-page", CNRE_SEGMENT_PAGE, sizeof(struct cnre_page));

	if (r == 0)
		r = create_own_segment(&manager->counters_segment, "cnre-counters", CNRE_SEGMENT_COUNTERS,
				       sizeof(struct cnre_counters));
	if (r == 0)
		r = create_own_segment(&manager->state_segment, "cnre-state", CNRE_SEGMENT_STATE,
				       sizeof(struct cnre_state_table));
	if (r < 0)
		return say(message, r, "cannot make shared memory");
	manager->page = manager->page_segment.base;
	manager->counters = manager->counters_segment.base;
	manager->state = manager->state_segment.base;
	manager->state->epoch = manager->state->serving_epoch = 1;
	manager->state->model_count = manager->model_count;
	/* [V2] relaxed: no client has the page yet. */
	atomic_store_explicit(&manager->page->epoch, 1, memory_order_relaxed);
	for (uint32_t i = 0; i < manager->model_count; i++) {
		r = directory_build(&manager->model[i]);
		if (r < 0)
			return say(message, r, "cannot make the directory of a model");
	}
	return 0;
}

/* Every shard of every model, found direct or buffered; a file that changed since its catalog was made is refused. */
static int add_files(struct manager *manager, char *message)
{
	for (uint32_t m = 0; m < manager->model_count; m++) {
		struct served_model *model = &manager->model[m];

		if (model->checkpoint != NULL) {
			model->files_of_shard = model->checkpoint->files_of_shard;
			continue;
		}
		free(model->files_of_shard); /* of an engine that could not read them */
		model->files_of_shard = calloc(model->catalog->shard_count, sizeof *model->files_of_shard);
		if (model->files_of_shard == NULL)
			return say(message, -ENOMEM, "cannot remember the shards");
		for (uint32_t i = 0; i < model->catalog->shard_count; i++) {
			const struct model_shard *shard = &model->catalog->shard[i];
			int file = loader_add_file(manager->loader, shard->path, shard->bytes);

			if (file < 0) {
				(void)snprintf(message, SERVE_MESSAGE_BYTES, "%.300s: %s: %s", shard->path, strerror(-file),
					       loader_file_advice(file));
				return file;
			}
			model->files_of_shard[i] = (struct shard_files){.count = 1, .file = {(uint32_t)file}};
		}
	}
	return 0;
}

/*
 * A drive is kept busy by bytes in flight, not by objects: large experts need few at once, since each is many chunks, and
 * small ones more. Measured with experts of 0.8 MiB: 4 in flight gave 0.8 of the tokens per second that 16 gave.
 */
static uint32_t reads_in_flight_for(uint64_t object_bytes)
{
	uint64_t reads = READ_BYTES_IN_FLIGHT / object_bytes;

	if (reads < LOADER_READS_IN_FLIGHT_DEFAULT)
		return LOADER_READS_IN_FLIGHT_DEFAULT;
	return reads < READS_IN_FLIGHT_MOST ? (uint32_t)reads : READS_IN_FLIGHT_MOST;
}

static int start_loader(struct manager *manager, const struct loader_setup *setup, char *message)
{
	struct loader_status status;
	int r = loader_open(&manager->loader, setup);

	if (r < 0)
		return say(message, r, "cannot start the loader");
	loader_set_foreign(manager->loader, ring_completion, manager);
	loader_get_status(manager->loader, &status);
	if (status.reason[0] != '\0')
		cnre_log(CNRE_LOG_WARNING, "loader: %s", status.reason);
	return add_files(manager, message);
}

static int open_loader(struct manager *manager, const struct serve_setup *setup, char *message)
{
	struct loader_setup loader = setup->loader;
	uint64_t share = setup->budget_bytes / manager->window_bytes / RESERVATION_LOADS_SHARE;
	int r;

	loader.refused = direct_refused;
	loader.refused_context = manager;
	if (loader.reads_in_flight_max == 0)
		loader.reads_in_flight_max = reads_in_flight_for(manager->window_bytes);
	if (loader.reads_in_flight_max > share)
		loader.reads_in_flight_max = share > 0 ? (uint32_t)share : 1;
	r = start_loader(manager, &loader, message);
	if (r != -EOPNOTSUPP || loader.engine != LOADER_ENGINE_AUTO)
		return r;
	manager->loader = loader_close(manager->loader);
	manager->buffered_drives = 0;
	loader.engine = LOADER_ENGINE_POOL;
	cnre_log(CNRE_LOG_WARNING, "loader: a checkpoint lies on FUSE, which io_uring cannot be trusted with: as with --io pool");
	return start_loader(manager, &loader, message);
}

static int open_pool(struct manager *manager, const struct serve_setup *setup, char *message)
{
	struct pool_setup pool = {
		.budget_bytes = setup->budget_bytes,
		.window_bytes = manager->window_bytes,
		.slab_bytes_total = manager->slab_bytes_total,
		.first_backing = setup->first_backing,
		.numa_node = setup->numa_node,
		.tenants = {.context = manager, .is_busy = residency_is_busy, .evict = residency_evict},
		.memory = {.context = manager, .added = memory_added, .removed = memory_removed},
		.note = pool_note,
	};
	int r;

	count_pool_bytes(manager, 0); /* a former incarnation's count is in the same word */
	if (!manager->adopted)
		return pool_open(&manager->pool, &pool, message);
	r = pool_open_empty(&manager->pool, &pool, segments_made(manager), message);
	if (r < 0)
		return r;
	r = adopt_pool(manager);
	return r < 0 ? say(message, r, "cannot take over the pool") : 0;
}

/* Before the first load; set ram moves loads_max below it. */
static void decide_loads(struct manager *manager)
{
	struct loader_status loader;
	struct pool_status pool;

	loader_get_status(manager->loader, &loader);
	pool_get_status(manager->pool, &pool);
	/* A mirror's drive is known only when its first copy is proven. */
	if (manager->settings != NULL)
		loader.drives += manager->settings->mirror.count;
	manager->drives_most = loader.drives < LOADER_DRIVES_MAX ? loader.drives : LOADER_DRIVES_MAX;
	manager->loads_most = loader.reads_in_flight_max * manager->drives_most;
	manager->loads_max = manager->loads_most = reservation_loads(manager, pool.windows);
}

static int open_digests(struct manager *manager, const struct serve_setup *setup, char *message)
{
	int r;

	if (setup->scrub_ns > 0 && !setup->verify_loads && setup->digests == NULL) {
		(void)snprintf(message, SERVE_MESSAGE_BYTES,
			       "--scrub has nothing to compare with: add --verify load, or --digests");
		return -EINVAL;
	}
	if (!setup->verify_loads && setup->scrub_ns == 0) {
		if (setup->digests != NULL)
			cnre_log(CNRE_LOG_WARNING,
				 "digests: %.300s is not used: --verify is no, and there is no --scrub",
				 setup->digests);
		return 0;
	}
	r = digest_open(&manager->digests, manager, setup->digests, message, SERVE_MESSAGE_BYTES);
	if (r < 0)
		return r;
	manager->verifies_loads = setup->verify_loads;
	r = scrub_open(manager, setup->scrub_ns);
	return r < 0 ? say(message, r, "cannot start the scrub") : 0;
}

/* Everything that a dead manager left, or a message; see adopt.h. */
static int take_over(struct manager *manager, char *message)
{
	int r;

	state_load_retired(manager);
	r = adopt_clients_and_objects(manager);
	if (r < 0) {
		adopt_refuse(manager, strerror(-r));
		return say(message, r, "cannot take over from the former manager");
	}
	reservation_apply(manager);
	manager->state->serving_epoch = manager->state->epoch;
	manager->is_adopting = 0;
	persist_listener(manager); /* is there, but an older manager did not say what it is bound to */
	store_drop_rest(manager->store);
	return 0;
}

static int open_tables(struct manager *manager, char *message)
{
	int r = loop_open(&manager->loop);

	if (r == 0)
		r = worker_open(&manager->worker, WORKER_THREADS_MAX);
	if (r == 0)
		r = prepare_open(manager);
	if (r == 0)
		r = worker_open(&manager->writer, 1);
	if (r == 0)
		r = session_table_open(&manager->sessions);
	if (r == 0)
		r = survey_open(manager);
	return r < 0 ? say(message, r, "cannot start") : 0;
}

/* `cnrectl policy` outlives the manager it was said to. A name that this release does not know is no reason not to start. */
static const char *policy_in_force(const struct manager *manager, const struct serve_setup *setup)
{
	const char *said = manager->state->policy;

	if (!manager->adopted || memchr(said, '\0', CNRE_NAME_BYTES) == NULL)
		return setup->policy;
	for (unsigned i = 0; policy_name_at(i) != NULL; i++)
		if (strcmp(policy_name_at(i), said) == 0)
			return said;
	return setup->policy;
}

static int open_memory(struct manager *manager, const struct serve_setup *setup, char *message)
{
	int r = open_loader(manager, setup, message);

	if (r < 0)
		return r;
	r = drive_open_all(manager, setup->drive_weights, message, SERVE_MESSAGE_BYTES);
	if (r < 0)
		return r;
	r = open_pool(manager, setup, message);
	if (r < 0)
		return r;
	decide_loads(manager);
	r = residency_open(manager, &(struct residency_setup){.policy = policy_in_force(manager, setup),
							      .pool = setup->pool,
							      .loads_max = manager->loads_max,
							      .budget_bytes = setup->budget_bytes});
	if (r == -EINVAL)
		return say(message, r, "the policy does not go with this --pool: leave --pool out");
	if (r < 0)
		return say(message, r, "cannot make the tables of residency");
	r = fence_open(manager);
	return r < 0 ? say(message, r, "cannot make a fence") : 0;
}

static int open_doors(struct manager *manager, char *message)
{
	int r = bell_open(manager, &manager->bell);

	if (r < 0)
		return say(message, r, "cannot listen to clients' bells");
	r = watch_wakers(manager);
	if (r == 0)
		r = guard_open(manager);
	if (r < 0)
		return say(message, r, "cannot watch signals");
	if (manager->adopted)
		return take_over(manager, message);
	persist_core(manager);
	reservation_apply(manager);
	return 0;
}

static int open_parts(struct manager *manager, const struct serve_setup *setup, char *message)
{
	struct serve_setup own = *setup;
	int r;

	manager->adopted = manager->is_adopting = adopt_segments(manager);
	if (manager->adopted && manager->state->budget_bytes > 0)
		own.budget_bytes = manager->state->budget_bytes; /* set ram outlives the manager it was said to */
	r = manager->adopted ? 0 : open_own_segments(manager, message);
	if (r == 0)
		r = open_digests(manager, setup, message);
	if (r == 0)
		r = open_tables(manager, message);
	/* The path and its lock before the pool: what is wrong with them is said before memory is touched for minutes. */
	if (r == 0)
		r = listener_open(manager, &setup->listener, message);
	if (r == 0)
		r = metrics_open(manager, message);
	if (r == 0)
		r = feed_open(manager, setup->usage, message, SERVE_MESSAGE_BYTES);
	if (r == 0 && layer_counts_open(manager) < 0)
		r = say(message, -ENOMEM, "cannot make the tables of layers");
	if (r == 0)
		r = open_memory(manager, &own, message);
	if (r == 0)
		r = kv_open(manager, message);
	if (r == 0)
		r = vram_open(manager, message);
	if (r < 0)
		return r;
	r = open_doors(manager, message);
	if (r < 0)
		return r;
	/* Now that residents are in their places: either may evict, and give segments back, before anybody is served. */
	measure_open(manager);
	pressure_open(manager);
	if (use_import_open(manager) < 0 || warm_open(manager) < 0)
		return say(message, -ENOMEM, "cannot make the table of a warm list");
	if (manager->settings == NULL)
		return 0;
	r = mirror_open(manager, &manager->settings->mirror); /* reads nothing here: see mirror.h */
	return r < 0 ? say(message, r, "cannot begin to check the mirrors") : 0;
}

int serve_open(struct manager *manager, const struct serve_setup *setup, char message[SERVE_MESSAGE_BYTES])
{
	int r, is_successor;

	watchdog_open(&manager->watchdog);
	manager->started_ns = cnre_clock_now_ns();
	manager->read_timeout_ns = setup->read_timeout_ns;
	manager->clients_max = setup->clients_max < CNRE_SESSIONS_MAX ? setup->clients_max : CNRE_SESSIONS_MAX;
	wakers.signals.fd = -1;
	/*
	 * A successor that cannot start takes nothing apart: its socket's path, the stored segments and the sessions are
	 * for the next one, and what it opened itself goes with its process.
	 */
	is_successor = manager->store != NULL && store_inherited(manager->store) > 0;
	r = open_parts(manager, setup, message);
	if (r < 0 && !is_successor)
		serve_close(manager);
	return r;
}

/* ---- the core loop ---- */

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/*
 * One turn: completions, channels, submissions. Returns 1 when there may be more to do at once. The bell is armed and
 * `awake` cleared only when a whole turn found nothing, and then the channels are looked at once more (R14).
 */
static int turn(struct manager *manager)
{
	int busy = loader_reap(manager->loader) > 0;

	loop_poll(manager->loop);
	busy |= channel_serve_all(manager);
	busy |= kv_turn(manager);
	drive_tick(manager, cnre_clock_now_ns());
	residency_pump(manager);
	warm_pump(manager); /* after what anybody asked for */
	busy |= survey_pump(manager);
	scrub_pump(manager); /* after the demands: it takes the place of a load */
	busy |= vram_turn(manager); /* likewise */
	loader_flush(manager->loader);
	listener_tick(manager, cnre_clock_now_ns());
	control_reply_tick(cnre_clock_now_ns()); /* a look at the listener's path is reason enough for a turn */
	measure_tick(manager, cnre_clock_now_ns());
	pressure_tick(manager, cnre_clock_now_ns());
	feed_tick(manager, cnre_clock_now_ns());
	guard_tick(manager, cnre_clock_now_ns());
	mirror_tick(manager, cnre_clock_now_ns());
	say_alive(manager);
	return busy;
}

static void sleep_until_needed(struct manager *manager)
{
	int64_t deadline_ns = earlier(residency_deadline_ns(manager), listener_deadline_ns(manager));

	deadline_ns = earlier(deadline_ns, drive_deadline_ns(manager));
	deadline_ns = earlier(deadline_ns, scrub_deadline_ns(manager));
	deadline_ns = earlier(deadline_ns, warm_deadline_ns(manager));
	deadline_ns = earlier(deadline_ns, measure_deadline_ns(manager));
	deadline_ns = earlier(deadline_ns, pressure_deadline_ns(manager));
	deadline_ns = earlier(deadline_ns, channel_deadline_ns(manager));
	deadline_ns = earlier(deadline_ns, kv_deadline_ns(manager));
	deadline_ns = earlier(deadline_ns, vram_deadline_ns(manager));
	deadline_ns = earlier(deadline_ns, feed_deadline_ns(manager));
	deadline_ns = earlier(deadline_ns, guard_deadline_ns(manager));
	deadline_ns = earlier(deadline_ns, mirror_deadline_ns(manager));
	deadline_ns = earlier(deadline_ns, watchdog_deadline_ns(&manager->watchdog));
	if (bell_prepare(manager->bell) && !channel_any_pending(manager) && !kv_any_pending(manager))
		loop_wait(manager->loop, manager->loader, deadline_ns);
	bell_awake(manager->bell);
}

void serve_run(struct manager *manager)
{
	bell_awake(manager->bell);
	CNRE_PROBE(restart, manager->state->epoch, (uint32_t)(manager->adopted != 0));
	while (!manager->stopping)
		if (!turn(manager) && !manager->stopping)
			sleep_until_needed(manager);
	store_stopping(manager->store);
}

/* ---- closing ---- */

/* Workers unmap what ended sessions had; each is a few milliseconds. */
static void finish_cleanups(struct manager *manager)
{
	while (manager->sessions != NULL && manager->sessions->cleanups > 0) {
		struct pollfd ready = {.fd = worker_event_fd(manager->worker), .events = POLLIN};

		(void)poll(&ready, 1, -1);
		(void)worker_reap(manager->worker);
	}
}

/* A manifest that cannot be written costs the next manager its digests only. */
static void close_digests(struct manager *manager)
{
	char message[SERVE_MESSAGE_BYTES];

	scrub_close(manager);
	if (manager->digests != NULL && digest_save(manager->digests, message, sizeof message) < 0)
		cnre_log(CNRE_LOG_ERROR, "%s", message);
	manager->digests = digest_close(manager->digests);
}

struct last_writes {
	struct worker_job job; /* first: run gets its address */
	struct manager *manager;
};

static void write_last(struct worker_job *job)
{
	struct manager *manager = ((struct last_writes *)job)->manager;

	close_digests(manager);
	feed_close(manager);
}

static void nothing_more(struct worker_job *job)
{
	(void)job;
}

/*
 * After the workers: nothing is hashed any more. All that is left to write is, behind what the writer has begun; this thread
 * touches none of it meanwhile, and does not wait for a drive that hangs: then the rest goes with the process, and a file
 * is as it was, or is seen to be cut.
 */
static void close_files(struct manager *manager)
{
	static struct last_writes last;

	if (manager->writer == NULL) {
		close_digests(manager);
		feed_close(manager);
		return;
	}
	last = (struct last_writes){.job = {.run = write_last, .done = nothing_more}, .manager = manager};
	worker_submit(manager->writer, &last.job);
	if (worker_drain(manager->writer, STOP_DRAIN_NS) < 0) {
		cnre_log(CNRE_LOG_WARNING,
			 "a drive does not answer: the history of uses, a trace or digests are not written to their end");
		_exit(0);
	}
	manager->writer = worker_close(manager->writer);
}

/* Not even its exit handlers come back from a driver that hangs; what is to be written is. */
static void leave_gpu_behind(void)
{
	cnre_log(CNRE_LOG_WARNING, "a GPU does not answer: leaving it to the kernel");
	_exit(0);
}

/*
 * systemd says SIGTERM for a stop and for a restart, and only afterwards drops or passes on what is stored. So nothing that
 * is shared may be taken apart here: reads come to their end, digests are saved, the rest goes with the process.
 */
static void leave_to_store(struct manager *manager)
{
	int r = vram_close(manager); /* goes with this process in any case */

	manager->loader = loader_close(manager->loader);
	kv_leave(manager);
	manager->worker = worker_close(manager->worker);
	close_files(manager);
	if (r < 0)
		leave_gpu_behind();
}

/* The kernel keeps the memory until the reads are over; the sockets are closed, so nobody of ours is waited for. */
static void leave_reads_behind(struct manager *manager)
{
	cnre_log(CNRE_LOG_WARNING, "a drive does not answer: leaving its reads to the kernel");
	finish_cleanups(manager);
	kv_leave(manager);
	manager->worker = worker_close(manager->worker);
	close_files(manager);
	_exit(0);
}

void serve_close(struct manager *manager)
{
	int gpu;

	metrics_close(manager);
	if (manager->store != NULL && store_kind(manager->store) == STORE_SYSTEMD && manager->stopping) {
		leave_to_store(manager);
		return;
	}
	pressure_close(manager);
	mirror_close(manager);
	guard_close(manager);
	listener_close(manager);
	while (manager->sessions != NULL && manager->sessions->active_count > 0)
		session_end(manager->sessions->active[manager->sessions->active_count - 1], 0);
	manager->bell = bell_close(manager->bell);
	if (manager->loader != NULL && loader_drain(manager->loader, STOP_DRAIN_NS) < 0)
		leave_reads_behind(manager);
	manager->loader = loader_close(manager->loader); /* waits for reads: their memory must not go before them */
	drive_close_all(manager);
	fence_close(manager);
	kv_close(manager);
	finish_cleanups(manager);
	gpu = vram_close(manager);
	manager->worker = worker_close(manager->worker);
	manager->prepare = prepare_close(manager->prepare);
	close_files(manager);
	if (gpu < 0)
		leave_gpu_behind();
	warm_close(manager);
	use_import_close(manager);
	residency_close(manager);
	manager->sessions = session_table_close(manager->sessions);
	survey_close(manager);
	layer_counts_close(manager);
	manager->pool = pool_close(manager->pool);
	if (wakers.signals.fd >= 0)
		(void)close(wakers.signals.fd);
	wakers.signals.fd = -1;
	manager->loop = loop_close(manager->loop);
	for (uint32_t i = 0; i < manager->model_count; i++) {
		directory_close(&manager->model[i]);
		if (manager->model[i].checkpoint == NULL)
			free(manager->model[i].files_of_shard);
		manager->model[i].files_of_shard = NULL;
		manager->model[i].catalog = model_catalog_close(manager->model[i].catalog);
	}
	cnre_segment_close(&manager->page_segment);
	cnre_segment_close(&manager->counters_segment);
	cnre_segment_close(&manager->state_segment);
}
