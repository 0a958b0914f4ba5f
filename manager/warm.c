/* SPDX-License-Identifier: Apache-2.0 */
/* The list, its order, and its loads one by one; see warm.h. */
#include "manager/warm.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "manager/residency_inner.h"
#include "manager/settings.h"
#include "manager/use_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WRITER_BYTES 64

struct entry {
	double worth;                /* uses a byte */
	uint32_t first;              /* where the file names it: among equals, the earlier */
	uint32_t owner;
};

struct warm {
	struct use_file file;
	struct manager *manager;
	enum warm_state state;
	enum warm_end end;
	struct warm_limits limits;
	struct entry *list;          /* [listed] in the order of loading */
	uint32_t listed, next;
	uint32_t in_flight[WARM_IN_FLIGHT_MAX], in_flight_count;
	uint32_t loaded, present, refused, failed;
	uint64_t begun_bytes, loaded_bytes;
	int64_t began_ns, ended_ns;
	char writer[WRITER_BYTES];
	const char *kind;
};

/* ---- the list, on the writer's thread ---- */

static int compare(const void *a, const void *b)
{
	const struct entry *left = a, *right = b;

	if (left->worth != right->worth)
		return left->worth > right->worth ? -1 : 1;
	return left->first < right->first ? -1 : left->first > right->first;
}

static void make_list(void *owner)
{
	struct warm *warm = owner;
	const struct served_model *model = warm->file.model;
	const struct model_catalog *catalog = model->catalog;
	const struct use_list *uses = &warm->file.list;

	warm->list = calloc(catalog->object_count, sizeof *warm->list);
	for (uint32_t i = 0; warm->list != NULL && i < catalog->object_count; i++) {
		const struct model_object *object = &catalog->object[i];
		size_t cell = (size_t)object->layer * uses->usage.experts + object->expert;

		if (uses->usage.count[cell] == 0)
			continue;
		warm->list[warm->listed++] = (struct entry){
			.worth = (double)uses->usage.count[cell] / (double)catalog->shape[object->shape].slab_bytes,
			.first = uses->first[cell],
			.owner = model->first_owner + i,
		};
	}
	if (warm->list != NULL)
		qsort(warm->list, warm->listed, sizeof *warm->list, compare);
}

/* ---- life of a list ---- */

static const char *end_word(enum warm_end end)
{
	static const char *const words[] = {
		[WARM_END_NONE] = "", [WARM_END_ALL] = "all of it was looked at", [WARM_END_BYTES] = "as many bytes as it may",
		[WARM_END_TIME] = "its time was over", [WARM_END_FULL] = "no room without evicting others",
		[WARM_END_STOPPED] = "stopped", [WARM_END_FILE] = "its file was refused",
	};

	return words[end];
}

static void finish(struct warm *warm, enum warm_end end)
{
	char bytes[16];

	warm->state = WARM_OVER;
	warm->end = end;
	warm->ended_ns = cnre_clock_now_ns();
	free(warm->list);
	warm->list = NULL;
	if (end == WARM_END_FILE)
		cnre_log(CNRE_LOG_WARNING, "warm: %s: %s: nothing is loaded for it", warm->file.name, warm->file.message);
	else
		cnre_log(CNRE_LOG_NOTICE, "warm: %s: %u of %u experts begun (%s), %u were there: %s", warm->file.name,
			 warm->loaded + warm->failed + warm->in_flight_count, warm->listed,
			 cnre_size_format(warm->begun_bytes, bytes, sizeof bytes), warm->present, end_word(end));
}

static void was_read(void *owner)
{
	struct warm *warm = owner;

	if (warm->file.result == 0) {
		warm->kind = use_list_kind_name(warm->file.list.kind);
		(void)use_file_other_writer(&warm->file, warm->writer, sizeof warm->writer);
		use_list_close(&warm->file.list);
	}
	if (warm->state != WARM_READING) { /* stopped meanwhile */
		free(warm->list);
		warm->list = NULL;
		return;
	}
	if (warm->file.result == 0 && warm->list == NULL)
		(void)strcpy(warm->file.message, "out of memory");
	if (warm->list == NULL) {
		finish(warm, WARM_END_FILE);
		return;
	}
	warm->state = WARM_LOADING;
	warm->began_ns = cnre_clock_now_ns();
}

static int begin(struct warm *warm, const struct served_model *model, const char *name, const struct warm_limits *limits)
{
	struct manager *manager = warm->manager;

	if (warm->state == WARM_READING || warm->state == WARM_LOADING)
		return -EALREADY;
	if (warm->file.is_reading)
		return -EAGAIN;
	*warm = (struct warm){.manager = manager, .state = WARM_READING, .limits = *limits, .kind = ""};
	warm->file.model = model;
	warm->file.owner = warm;
	warm->file.prepare = make_list;
	warm->file.done = was_read;
	use_file_name(&warm->file, name);
	return 0;
}

int warm_start(struct manager *manager, const struct served_model *model, const char *name, int fd,
	       const struct warm_limits *limits)
{
	int r = begin(manager->warm, model, name, limits);

	if (r == 0)
		use_file_read_fd(&manager->warm->file, manager->writer, fd);
	return r;
}

int warm_stop(struct manager *manager)
{
	struct warm *warm = manager->warm;

	if (warm->state != WARM_READING && warm->state != WARM_LOADING)
		return -ENOENT;
	if (warm->state == WARM_READING) { /* the writer's thread makes the list still: was_read drops it */
		warm->state = WARM_OVER;
		warm->end = WARM_END_STOPPED;
		cnre_log(CNRE_LOG_NOTICE, "warm: %s: stopped before it was read", warm->file.name);
		return 0;
	}
	finish(warm, WARM_END_STOPPED);
	return 0;
}

/* ---- loads ---- */

static int64_t due_ns(const struct warm *warm)
{
	return warm->limits.time_ns == 0 || warm->limits.time_ns > (uint64_t)(INT64_MAX - warm->began_ns)
		       ? CNRE_NEVER
		       : warm->began_ns + (int64_t)warm->limits.time_ns;
}

/* Those that arrived, and those that did not: an entry tells. */
static void settle(struct warm *warm)
{
	for (uint32_t i = warm->in_flight_count; i-- > 0;) {
		uint32_t owner = warm->in_flight[i];
		enum cnre_state state = cnre_word_state(object_word(entry_of(warm->manager, owner)));

		if (state == CNRE_STATE_LOADING)
			continue;
		warm->loaded += state != CNRE_STATE_ABSENT;
		warm->loaded_bytes += state != CNRE_STATE_ABSENT ? slab_bytes_of(warm->manager, owner) : 0;
		warm->failed += state == CNRE_STATE_ABSENT;
		warm->in_flight[i] = warm->in_flight[--warm->in_flight_count];
	}
}

/* The next of the list: 1 done with it, 0 not now. May be the last. */
static int look(struct warm *warm)
{
	uint32_t owner = warm->list[warm->next].owner;
	uint64_t bytes = slab_bytes_of(warm->manager, owner);
	int r;

	if (cnre_word_state(object_word(entry_of(warm->manager, owner))) != CNRE_STATE_ABSENT) {
		warm->present++;
		return 1;
	}
	if (warm->limits.bytes > 0 && warm->begun_bytes + bytes > warm->limits.bytes) {
		finish(warm, WARM_END_BYTES);
		return 0;
	}
	r = warm->in_flight_count == WARM_IN_FLIGHT_MAX ? 0 : pump_idle(warm->manager, owner, warm->in_flight_count);
	if (r == -ENOSPC)
		finish(warm, WARM_END_FULL);
	if (r == -EBUSY)
		object_reject(warm->manager, owner);
	if (r <= 0) {
		warm->refused += r == -EBUSY;
		warm->failed += r == -EIO;
		return r == -EBUSY || r == -EIO;
	}
	warm->in_flight[warm->in_flight_count++] = owner;
	warm->begun_bytes += bytes;
	cnre_counter_add(&warm->manager->counters->warm_loads, 1);
	return 1;
}

void warm_pump(struct manager *manager)
{
	struct warm *warm = manager->warm;

	settle(warm);
	if (warm->state != WARM_LOADING)
		return;
	if (cnre_clock_left_ns(due_ns(warm)) == 0) {
		finish(warm, WARM_END_TIME);
		return;
	}
	for (uint32_t looks = 0; looks < WARM_LOOKS_PER_TURN && warm->next < warm->listed; looks++) {
		if (!look(warm))
			return;
		warm->next++;
	}
	if (warm->next == warm->listed)
		finish(warm, WARM_END_ALL);
}

int64_t warm_deadline_ns(const struct manager *manager)
{
	const struct warm *warm = manager->warm;
	int64_t look_ns;

	if (warm->state != WARM_LOADING)
		return CNRE_NEVER;
	/* What is on its way wakes the loop when it arrives; what others wait for may also go without a sound. */
	look_ns = cnre_clock_deadline_ns(WARM_LOOK_NS);
	return look_ns < due_ns(warm) ? look_ns : due_ns(warm);
}

/* ---- status ---- */

void warm_get_status(const struct manager *manager, struct warm_status *ret_status)
{
	const struct warm *warm = manager->warm;
	int64_t until_ns = warm->state == WARM_OVER ? warm->ended_ns : cnre_clock_now_ns();

	*ret_status = (struct warm_status){
		.state = warm->state,
		.end = warm->end,
		.model = warm->file.model,
		.name = warm->file.name,
		.kind = warm->kind,
		.writer = warm->writer,
		.error = warm->end == WARM_END_FILE ? warm->file.message : "",
		.limits = warm->limits,
		.listed = warm->state == WARM_READING || warm->began_ns == 0 ? 0 : warm->listed,
		.looked_at = warm->next,
		.loaded = warm->loaded,
		.present = warm->present,
		.refused = warm->refused,
		.failed = warm->failed,
		.on_their_way = warm->in_flight_count,
		.bytes_loaded = warm->loaded_bytes,
		.seconds = warm->began_ns == 0 ? 0 : (double)(until_ns - warm->began_ns) / 1e9,
	};
}

/* ---- the manager's own list ---- */

static void start_own(struct manager *manager)
{
	const struct settings *settings = manager->settings;
	const struct warm_limits limits = {.bytes = settings->warm_bytes, .time_ns = settings->warm_time_ns};

	if (manager->adopted) {
		cnre_log(CNRE_LOG_INFO, "warm: %.200s: not again: residents were taken over", settings->warm);
		return;
	}
	(void)begin(manager->warm, &manager->model[0], settings->warm, &limits); /* the first one is not refused */
	use_file_read_path(&manager->warm->file, manager->writer, settings->warm);
}

int warm_open(struct manager *manager)
{
	struct warm *warm = calloc(1, sizeof *warm);

	if (warm == NULL)
		return -ENOMEM;
	warm->manager = manager;
	warm->kind = "";
	manager->warm = warm;
	if (manager->settings->warm != NULL)
		start_own(manager);
	else if (manager->settings->warm_bytes > 0 || manager->settings->warm_time_ns > 0)
		cnre_log(CNRE_LOG_WARNING, "--warm-bytes and --warm-time are of no use without --warm");
	return 0;
}

void warm_close(struct manager *manager)
{
	if (manager->warm != NULL) {
		use_list_close(&manager->warm->file.list);
		free(manager->warm->list);
	}
	free(manager->warm);
	manager->warm = NULL;
}
