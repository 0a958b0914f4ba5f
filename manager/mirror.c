/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mirrors of a manager; see mirror.h. Jobs of one mirror run one after another on its own thread, in the order of the
 * shards; what they find comes back to the core thread, which alone changes what is read from where.
 *
 * Crash note: nothing of it is shared. Killed at any point, the successor proves from the beginning; a read of a copy that was
 * under way is a late read as any other (R20).
 */
#include "manager/mirror.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "manager/loop.h"
#include "manager/manager.h"
#include "manager/mirror_check.h"
#include "manager/mirror_sample.h"
#include "manager/settings.h"
#include "manager/worker.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>

_Static_assert(SETTINGS_MIRRORS_MAX + 1 == LOADER_REPLICAS_MAX, "the primary and all mirrors");

struct mirror;

struct copy {
	struct worker_job job; /* first: run and done get its address */
	struct mirror *mirror;
	const struct mirror_shard *shard;
	struct mirror_verdict verdict; /* the thread's, until is_checked */
	int is_checked;                /* the core thread has it back */
	int directory_error; /* of the mirror's first: why there is no directory */
};

struct refusal {
	char *reason;
	const char *advice;
};

struct mirror {
	struct loop_source source; /* first: ready gets its address */
	struct mirrors *of;
	struct worker *worker;
	struct copy *copy; /* [of->shard_count] */
	char *directory;
	uint32_t number;
	struct mirror_progress progress;
	uint64_t seen_steps;
	int64_t moved_ns; /* when a step was last seen */
	int is_silent;
	int error; /* of its directory */
	uint32_t waiting, proven, refused, absent, on_same_disk;
	uint64_t bytes;
	struct refusal refusal[MIRROR_REFUSALS_SHOWN];
	uint32_t refusals;
};

struct mirrors {
	struct manager *manager;
	struct mirror_shard *shard; /* of all models */
	uint32_t shard_count;
	uint64_t bytes;
	struct mirror mirror[SETTINGS_MIRRORS_MAX];
	uint32_t count;
	int64_t look_ns;
};

/* ---- on the mirror's thread ---- */

static int directory_error(const char *directory)
{
	struct stat status;

	if (stat(directory, &status) < 0)
		return -errno;
	return S_ISDIR(status.st_mode) ? 0 : -ENOTDIR;
}

static void check_copy(struct worker_job *job)
{
	struct copy *copy = (struct copy *)job;

	if (copy == copy->mirror->copy)
		copy->directory_error = directory_error(copy->mirror->directory);
	mirror_check(copy->shard, copy->mirror->directory, &copy->mirror->progress, &copy->verdict);
}

/* ---- on the core thread: what was found ---- */

/* Else it is --check, which prints what is known at the end. */
static int serves(const struct mirror *mirror)
{
	return mirror->of->manager->loader != NULL;
}

/* A reason that is true of a whole directory is said for its first shard only. */
static void refuse(struct copy *copy)
{
	struct mirror *mirror = copy->mirror;
	struct mirror_verdict *verdict = &copy->verdict;

	mirror->refused++;
	if (verdict->reason == NULL || mirror->refusals == MIRROR_REFUSALS_SHOWN)
		return;
	if (mirror->refusals > 0 && strcmp(mirror->refusal[mirror->refusals - 1].reason, verdict->reason) == 0)
		return;
	if (serves(mirror))
		cnre_log(CNRE_LOG_WARNING, "mirror %.200s: %.500s: not used: %s", mirror->directory, verdict->reason,
			 verdict->advice);
	mirror->refusal[mirror->refusals++] = (struct refusal){verdict->reason, verdict->advice};
	verdict->reason = NULL; /* moved */
}

__attribute__((format(printf, 3, 4))) static void refuse_after_all(struct copy *copy, const char *advice,
								   const char *format, ...)
{
	va_list arguments;

	copy->verdict.finding = MIRROR_REFUSED;
	copy->verdict.advice = advice;
	va_start(arguments, format);
	if (vasprintf(&copy->verdict.reason, format, arguments) < 0)
		copy->verdict.reason = NULL;
	va_end(arguments);
	refuse(copy);
}

/* The same file in two mirrors is one drive. */
static const char *found_before(const struct copy *copy)
{
	const struct mirrors *mirrors = copy->mirror->of;
	size_t index = (size_t)(copy - copy->mirror->copy);

	for (uint32_t i = 0; i < mirrors->count; i++) {
		const struct copy *other = &mirrors->mirror[i].copy[index];

		if (i != copy->mirror->number && other->is_checked && other->verdict.finding == MIRROR_PROVEN &&
		    other->verdict.device == copy->verdict.device && other->verdict.inode == copy->verdict.inode)
			return other->verdict.path;
	}
	return NULL;
}

static int is_what_was_checked(const struct mirror_verdict *verdict)
{
	struct stat status;

	return stat(verdict->path, &status) == 0 && status.st_dev == verdict->device &&
	       status.st_ino == verdict->inode && status.st_mtim.tv_sec == verdict->changed.tv_sec &&
	       status.st_mtim.tv_nsec == verdict->changed.tv_nsec;
}

/* The loader opens it by its name once more, so it is looked at again afterwards. 1: it is read from now on. */
static int use_file(struct copy *copy)
{
	struct manager *manager = copy->mirror->of->manager;
	struct shard_files *files = &manager->model[copy->shard->model].files_of_shard[copy->shard->index];
	int file = loader_add_file(manager->loader, copy->verdict.path, copy->shard->bytes);

	if (file < 0) {
		refuse_after_all(copy, loader_file_advice(file), "%s: %s", copy->verdict.path, strerror(-file));
		return 0;
	}
	if (!is_what_was_checked(&copy->verdict)) {
		refuse_after_all(copy, "stop what writes it, then restart the manager",
				 "%s: changed while it was checked", copy->verdict.path);
		return 0;
	}
	CNRE_CHECK(files->count < LOADER_REPLICAS_MAX);
	files->mirror[files->count] = (uint8_t)(copy->mirror->number + 1);
	files->file[files->count++] = (uint32_t)file;
	return 1;
}

static void use(struct copy *copy)
{
	struct mirror *mirror = copy->mirror;
	const char *other = found_before(copy);

	if (other != NULL) {
		refuse_after_all(copy, "leave one of the two mirrors out", "%s: is the very file %s",
				 copy->verdict.path, other);
		return;
	}
	if (serves(mirror) && !use_file(copy))
		return;
	mirror->proven++;
	mirror->bytes += copy->shard->expert_bytes;
	mirror->on_same_disk += copy->verdict.shares_disk != 0;
}

static void say_end(const struct mirror *mirror)
{
	char has[16], all[16];

	if (mirror->error != 0) {
		cnre_log(CNRE_LOG_WARNING, "mirror %.300s: %s: left out: mount its drive, then restart the manager",
			 mirror->directory, strerror(-mirror->error));
		return;
	}
	cnre_log(CNRE_LOG_NOTICE,
		 "mirror %.300s: copies of %u of %u shards are used, with %s of %s of experts; %u refused",
		 mirror->directory, mirror->proven, mirror->of->shard_count,
		 cnre_size_format(mirror->bytes, has, sizeof has), cnre_size_format(mirror->of->bytes, all, sizeof all),
		 mirror->refused);
	if (mirror->on_same_disk > 0)
		cnre_log(
			CNRE_LOG_WARNING,
			"mirror %.300s: %u of its shards lie on the same disk as the checkpoint: nothing is gained: use another drive",
			mirror->directory, mirror->on_same_disk);
}

/* With several models a file beside the folders is one model's, and for the others as if it were not there. */
static int is_another_models(const struct copy *copy)
{
	return copy->verdict.finding == MIRROR_REFUSED && copy->verdict.is_foreign &&
	       copy->mirror->of->manager->model_count > 1;
}

static void copy_checked(struct worker_job *job)
{
	struct copy *copy = (struct copy *)job;
	struct mirror *mirror = copy->mirror;

	copy->is_checked = 1;
	if (copy == mirror->copy)
		mirror->error = copy->directory_error;
	if (copy->verdict.finding == MIRROR_PROVEN)
		use(copy);
	else if (copy->verdict.finding == MIRROR_REFUSED && !is_another_models(copy))
		refuse(copy);
	else
		mirror->absent++;
	if (--mirror->waiting == 0 && serves(mirror))
		say_end(mirror);
}

static void something_checked(struct loop_source *source, uint32_t events)
{
	struct mirror *mirror = (struct mirror *)source;

	(void)events;
	(void)worker_reap(mirror->worker);
}

/* ---- opening ---- */

static int sample_models(struct mirrors *mirrors)
{
	struct manager *manager = mirrors->manager;
	uint64_t parts = 0, objects = 0;
	struct mirror_density density;

	for (uint32_t m = 0; m < manager->model_count; m++)
		if (manager->model[m].checkpoint == NULL) { /* a view has no files of its own */
			parts += mirror_sample_parts(manager->model[m].catalog);
			objects += manager->model[m].catalog->object_count;
		}
	density = mirror_sample_density(parts, objects, MIRROR_SAMPLE_BYTES_MAX);
	for (uint32_t m = 0; m < manager->model_count; m++) {
		struct mirror_shard *shard = NULL, *grown;
		uint32_t count = 0;
		int r;

		if (manager->model[m].checkpoint != NULL)
			continue;
		r = mirror_sample(manager->model[m].catalog, density, &shard, &count);

		if (r < 0)
			return r;
		grown = realloc(mirrors->shard, (mirrors->shard_count + (size_t)count + 1) * sizeof *grown);
		if (grown == NULL) {
			mirror_sample_free(shard, count);
			return -ENOMEM;
		}
		mirrors->shard = grown;
		for (uint32_t i = 0; i < count; i++) {
			shard[i].model = m;
			mirrors->bytes += shard[i].expert_bytes;
			grown[mirrors->shard_count++] = shard[i];
		}
		free(shard); /* what it points to is in the longer one */
	}
	return 0;
}

static int open_mirror(struct mirrors *mirrors, const char *directory)
{
	struct mirror *mirror = &mirrors->mirror[mirrors->count];
	int r;

	mirror->of = mirrors;
	mirror->number = mirrors->count;
	mirror->directory = strdup(directory);
	mirror->copy = calloc((size_t)mirrors->shard_count + 1, sizeof *mirror->copy);
	mirrors->count++; /* from here on it is closed with the rest */
	if (mirror->directory == NULL || mirror->copy == NULL)
		return -ENOMEM;
	r = worker_open_background(&mirror->worker, 1);
	if (r < 0 || mirrors->manager->loop == NULL)
		return r;
	mirror->source = (struct loop_source){.fd = worker_event_fd(mirror->worker), .ready = something_checked};
	return loop_add(mirrors->manager->loop, &mirror->source, EPOLLIN);
}

static void begin(struct mirror *mirror)
{
	mirror->waiting = mirror->of->shard_count;
	mirror->moved_ns = cnre_clock_now_ns();
	for (uint32_t i = 0; i < mirror->of->shard_count; i++) {
		struct copy *copy = &mirror->copy[i];

		copy->mirror = mirror;
		copy->shard = &mirror->of->shard[i];
		copy->job = (struct worker_job){.run = check_copy, .done = copy_checked};
		worker_submit(mirror->worker, &copy->job);
	}
}

int mirror_open(struct manager *manager, const struct settings_list *directories)
{
	struct mirrors *mirrors;
	int r = 0;

	if (directories->count == 0)
		return 0;
	mirrors = calloc(1, sizeof *mirrors);
	if (mirrors == NULL)
		return -ENOMEM;
	mirrors->manager = manager;
	manager->mirrors = mirrors;
	CNRE_CHECK(directories->count <= SETTINGS_MIRRORS_MAX);
	r = sample_models(mirrors);
	for (uint32_t i = 0; i < directories->count && r == 0; i++)
		r = open_mirror(mirrors, directories->item[i]);
	if (r < 0) {
		mirror_close(manager);
		return r;
	}
	for (uint32_t i = 0; i < mirrors->count; i++)
		begin(&mirrors->mirror[i]);
	mirrors->look_ns = cnre_clock_now_ns() + MIRROR_LOOK_NS;
	return 0;
}

/* ---- closing ---- */

/* Jobs that wait see that they are not wanted; one that runs ends with its read. */
static int stop(struct mirror *mirror)
{
	if (mirror->worker == NULL)
		return 0;
	/* [MC3] relaxed: as [MC1]. */
	atomic_store_explicit(&mirror->progress.is_stopping, 1, memory_order_relaxed);
	if (mirror->source.fd > 0)
		loop_remove(mirror->of->manager->loop, &mirror->source);
	return worker_drain(mirror->worker, MIRROR_STOP_NS);
}

static void close_mirror(struct mirror *mirror)
{
	mirror->worker = worker_close(mirror->worker);
	for (uint32_t i = 0; mirror->copy != NULL && i < mirror->of->shard_count; i++) {
		free(mirror->copy[i].verdict.path);
		free(mirror->copy[i].verdict.reason);
	}
	for (uint32_t i = 0; i < mirror->refusals; i++)
		free(mirror->refusal[i].reason);
	free(mirror->copy);
	free(mirror->directory);
}

/* A thread whose drive does not answer still has what its job names: that memory stays, and goes with the process. */
void mirror_close(struct manager *manager)
{
	struct mirrors *mirrors = manager->mirrors;
	int hangs = 0;

	manager->mirrors = NULL;
	if (mirrors == NULL)
		return;
	for (uint32_t i = 0; i < mirrors->count; i++)
		hangs |= stop(&mirrors->mirror[i]) < 0;
	if (hangs)
		return;
	for (uint32_t i = 0; i < mirrors->count; i++)
		close_mirror(&mirrors->mirror[i]);
	mirror_sample_free(mirrors->shard, mirrors->shard_count);
	free(mirrors);
}

/* ---- while it is checked ---- */

static void look(struct mirror *mirror, int64_t now_ns)
{
	/* [MC4] relaxed: as [MC2]. */
	uint64_t steps = atomic_load_explicit(&mirror->progress.steps, memory_order_relaxed) +
			 (mirror->of->shard_count - mirror->waiting);

	if (steps != mirror->seen_steps) {
		mirror->seen_steps = steps;
		mirror->moved_ns = now_ns;
		mirror->is_silent = 0;
	}
	if (mirror->is_silent || mirror->waiting == 0 || now_ns - mirror->moved_ns < MIRROR_ANSWER_NS)
		return;
	mirror->is_silent = 1;
	cnre_log(
		CNRE_LOG_WARNING,
		"mirror %.300s: it or the checkpoint's own drive has not answered for %lld s: %u shards are left out until it does",
		mirror->directory, (long long)(MIRROR_ANSWER_NS / CNRE_NS_PER_S), mirror->waiting);
}

static uint32_t waiting(const struct mirrors *mirrors)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < mirrors->count; i++)
		count += mirrors->mirror[i].waiting;
	return count;
}

void mirror_tick(struct manager *manager, int64_t now_ns)
{
	struct mirrors *mirrors = manager->mirrors;

	if (mirrors == NULL || now_ns < mirrors->look_ns || waiting(mirrors) == 0)
		return;
	mirrors->look_ns = now_ns + MIRROR_LOOK_NS;
	for (uint32_t i = 0; i < mirrors->count; i++)
		look(&mirrors->mirror[i], now_ns);
}

int64_t mirror_deadline_ns(const struct manager *manager)
{
	const struct mirrors *mirrors = manager->mirrors;

	return mirrors == NULL || waiting(mirrors) == 0 ? CNRE_NEVER : mirrors->look_ns;
}

static int is_worth_waiting(const struct mirrors *mirrors)
{
	for (uint32_t i = 0; i < mirrors->count; i++)
		if (mirrors->mirror[i].waiting > 0 && !mirrors->mirror[i].is_silent)
			return 1;
	return 0;
}

void mirror_wait(struct manager *manager)
{
	struct mirrors *mirrors = manager->mirrors;

	while (mirrors != NULL && is_worth_waiting(mirrors)) {
		for (uint32_t i = 0; i < mirrors->count; i++) {
			(void)worker_drain(mirrors->mirror[i].worker, MIRROR_STOP_NS);
			(void)worker_reap(mirrors->mirror[i].worker);
		}
		mirror_tick(manager, cnre_clock_now_ns());
	}
}

/* ---- what is known ---- */

uint32_t mirror_count(const struct manager *manager)
{
	return manager->mirrors == NULL ? 0 : manager->mirrors->count;
}

void mirror_get_status(const struct manager *manager, uint32_t number, struct mirror_status *ret_status)
{
	const struct mirror *mirror = &manager->mirrors->mirror[number];

	CNRE_CHECK(number < manager->mirrors->count);
	*ret_status = (struct mirror_status){.directory = mirror->directory,
					     .fault = mirror->error == 0 ? "" : strerror(-mirror->error),
					     .shards = mirror->of->shard_count,
					     .waiting = mirror->waiting,
					     .proven = mirror->proven,
					     .refused = mirror->refused,
					     .absent = mirror->absent,
					     .on_same_disk = mirror->on_same_disk,
					     .bytes = mirror->bytes,
					     .bytes_of = mirror->of->bytes,
					     .is_silent = mirror->is_silent && mirror->waiting > 0,
					     .refusals = mirror->refusals};
	for (uint32_t i = 0; i < mirror->refusals; i++) {
		ret_status->reason[i] = mirror->refusal[i].reason;
		ret_status->advice[i] = mirror->refusal[i].advice;
	}
}
