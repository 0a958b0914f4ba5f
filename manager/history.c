/* SPDX-License-Identifier: Apache-2.0 */
/* Counting, merging and saving; see history.h. */
#include "manager/history.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/fingerprint.h"
#include "base/log.h"
#include "base/message.h"
#include "manager/loop.h"
#include "manager/worker.h"
#include "model/engine_name.h"
#include "model/usage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 512
#define CLOSE_TRIES 20
#define CLOSE_PAUSE_NS 50000000
#define IDENTITY_BYTES_SHOWN 6u /* of the fingerprint, in a file's name */

struct kept {
	const struct served_model *model;
	char path[PATH_MAX];         /* of the history; "" nothing is kept */
	struct usage known;          /* of the file, at the start or after the last save */
	struct usage saving;         /* what the save under way adds; zeros where none is */
	struct usage merged;         /* the worker's: what the file holds after it */
	int result;                  /* of the save */
	int said;                    /* the result that was last logged; 0: none since the last success */
	uint32_t tries_locked;       /* one after another */
	int is_swept;                /* the worker's: leftovers were looked for */
	int is_broken;               /* the file is no history of this model: it is left alone */
	int from_engine;             /* `known` is the engine's own history: the first file of ours begins with it */
	char message[LINE_BYTES];
};

struct history {
	struct worker_job job;       /* first: run and done get its address */
	uint32_t *fresh;             /* [owner_count] counted since the last save began */
	uint32_t *uses;              /* [owner_count] for history_uses */
	struct kept kept[MANAGER_MODELS_MAX];
	uint32_t kept_count;
	int is_counted;              /* fresh is not all 0 */
	int is_saving;
	int64_t due_ns;
};

static uint32_t add(uint32_t a, uint32_t b)
{
	return a > UINT32_MAX - b ? UINT32_MAX : a + b;
}

static uint32_t *cell(const struct usage *usage, const struct model_object *object)
{
	return &usage->count[(size_t)object->layer * usage->experts + object->expert];
}

static void add_usage(struct usage *to, const struct usage *from)
{
	for (size_t i = 0; i < (size_t)to->layers * to->experts; i++)
		to->count[i] = add(to->count[i], from->count[i]);
}

static void clear_usage(struct usage *usage)
{
	memset(usage->count, 0, (size_t)usage->layers * usage->experts * sizeof *usage->count);
}

/* ---- files ---- */

/* 1 read, 0 there is none, or -errno with a line. */
static int read_file(struct usage *usage, const char *path, char *message, size_t message_bytes)
{
	char reason[LINE_BYTES / 2] = "";
	uint64_t bytes;
	int64_t got = -EFBIG;
	char *text;
	int r, fd = cnre_file_open(AT_FDCWD, path, &bytes);

	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return cnre_message(message, message_bytes, fd, "usage: %.200s: %s", path, strerror(-fd));
	text = bytes <= USAGE_BYTES_MAX ? malloc(bytes + 1) : NULL;
	if (text != NULL)
		got = cnre_file_read(fd, text, bytes, 0);
	(void)close(fd);
	r = got < 0 ? (int)got : usage_read(usage, text, (size_t)got, reason, sizeof reason);
	free(text);
	if (r < 0)
		return cnre_message(message, message_bytes, r,
				    "usage: %.200s: %s: it is left alone; move it away to begin a new one", path,
				    reason[0] != '\0' ? reason : strerror(-r));
	return 1;
}

/* A lock of its own file, since the history itself is replaced. The descriptor, or -errno; -EWOULDBLOCK: another saves. */
static int lock_file(const char *path)
{
	char name[PATH_MAX];
	int fd, r = snprintf(name, sizeof name, "%s.lock", path);

	if (r < 0 || (size_t)r >= sizeof name)
		return -ENAMETOOLONG;
	fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		r = -errno;
		(void)close(fd);
		return r;
	}
	return fd;
}

/* What a process left that was killed while it wrote: never of a living one, for we have the lock. */
static void sweep_leftovers(const char *path)
{
	const char *name = strrchr(path, '/') + 1;
	size_t length = strlen(name);
	char folder[PATH_MAX];
	struct dirent *entry;
	DIR *directory;

	(void)snprintf(folder, sizeof folder, "%.*s", (int)(name - path), path);
	directory = opendir(folder);
	if (directory == NULL)
		return;
	while ((entry = readdir(directory)) != NULL)
		if (strncmp(entry->d_name, name, length) == 0 && entry->d_name[length] == '.' &&
		    strlen(entry->d_name) == length + 1 + CNRE_FILE_FRESH_BYTES)
			(void)unlinkat(dirfd(directory), entry->d_name, 0);
	(void)closedir(directory);
}

/* The file's counts and ours, into the file. 0 or -errno with a line; -EWOULDBLOCK: another saves. Any thread. */
static int merge(struct kept *kept)
{
	char *text;
	size_t bytes;
	int lock, r;

	lock = lock_file(kept->path);
	if (lock < 0)
		return cnre_message(kept->message, sizeof kept->message, lock, "usage: %.300s: not saved: %s", kept->path,
				    lock == -EWOULDBLOCK ? "another process has its lock: is a manager stopped?"
							 : strerror(-lock));
	if (!kept->is_swept)
		sweep_leftovers(kept->path);
	kept->is_swept = 1;
	clear_usage(&kept->merged);
	r = read_file(&kept->merged, kept->path, kept->message, sizeof kept->message);
	if (r == 0 && kept->from_engine)
		add_usage(&kept->merged, &kept->known);
	if (r >= 0) {
		add_usage(&kept->merged, &kept->saving);
		r = usage_write_text(&kept->merged, &text, &bytes);
		if (r == 0) {
			r = cnre_file_replace(kept->path, text, bytes);
			free(text);
		}
		if (r < 0)
			(void)cnre_message(kept->message, sizeof kept->message, r, "usage: %.300s: not saved: %s",
					   kept->path, strerror(-r));
	}
	(void)close(lock);
	return r;
}

/* ---- saving ---- */

static int is_kept(const struct kept *kept)
{
	return kept->path[0] != '\0' && !kept->is_broken;
}

static void save(struct worker_job *job)
{
	struct history *history = (struct history *)job;

	for (uint32_t i = 0; i < history->kept_count; i++)
		if (is_kept(&history->kept[i]))
			history->kept[i].result = merge(&history->kept[i]);
}

static void begin_save(struct history *history)
{
	for (uint32_t i = 0; i < history->kept_count; i++) {
		struct kept *kept = &history->kept[i];
		const struct model_catalog *catalog = kept->model->catalog;

		kept->result = 0;
		for (uint32_t object = 0; object < catalog->object_count; object++) {
			uint32_t *fresh = &history->fresh[kept->model->first_owner + object];

			*cell(&kept->saving, &catalog->object[object]) = *fresh;
			*fresh = 0;
		}
	}
	history->is_counted = 0;
	history->is_saving = 1;
}

/* Once, until it is another error or none. A lock is held for as long as a file takes to be written, so it is waited for. */
static void say_failure(struct kept *kept)
{
	kept->tries_locked = kept->result == -EWOULDBLOCK ? kept->tries_locked + 1 : 0;
	if (kept->result == kept->said || (kept->tries_locked > 0 && kept->tries_locked < HISTORY_LOCK_TRIES))
		return;
	kept->said = kept->result;
	cnre_log(CNRE_LOG_WARNING, "%s", kept->message);
}

/* What a failed save was to add is counted again; what a good one left in the file is what is known. */
static void take_result(struct history *history, struct kept *kept, int64_t now_ns)
{
	const struct model_catalog *catalog = kept->model->catalog;
	int failed = is_kept(kept) && kept->result < 0;

	if (failed || !is_kept(kept)) {
		for (uint32_t object = 0; object < catalog->object_count; object++) {
			uint32_t *fresh = &history->fresh[kept->model->first_owner + object];

			*fresh = add(*fresh, *cell(&kept->saving, &catalog->object[object]));
		}
	} else {
		struct usage known = kept->known;

		kept->known = kept->merged;
		kept->merged = known;
		kept->from_engine = 0;
		kept->said = 0;
		kept->tries_locked = 0;
	}
	clear_usage(&kept->saving);
	if (!failed)
		return;
	history->is_counted = 1;
	history->due_ns = now_ns + HISTORY_RETRY_NS;
	say_failure(kept);
	/* No history is no history at the next try either, and nothing may be lost by writing over it. */
	kept->is_broken = kept->result == -EINVAL || kept->result == -ESTALE || kept->result == -EXDEV;
}

static void saved(struct worker_job *job)
{
	struct history *history = (struct history *)job;
	int64_t now_ns = cnre_clock_now_ns();

	history->is_saving = 0;
	history->due_ns = now_ns + HISTORY_SAVE_NS;
	for (uint32_t i = 0; i < history->kept_count; i++)
		take_result(history, &history->kept[i], now_ns);
}

void history_tick(struct history *history, struct worker *worker, int64_t now_ns)
{
	if (history->is_saving || !history->is_counted || now_ns < history->due_ns)
		return;
	begin_save(history);
	worker_submit(worker, &history->job);
}

int64_t history_deadline_ns(const struct history *history)
{
	return history->is_saving || !history->is_counted ? CNRE_NEVER : history->due_ns;
}

/* ---- counting ---- */

void history_count(struct history *history, uint32_t owner, uint32_t uses)
{
	uint32_t *fresh = &history->fresh[owner];

	*fresh = add(*fresh, uses);
	history->is_counted = 1;
}

int history_is_kept(const struct history *history, uint32_t model)
{
	return is_kept(&history->kept[model]);
}

const uint32_t *history_uses(struct history *history)
{
	for (uint32_t i = 0; i < history->kept_count; i++) {
		const struct kept *kept = &history->kept[i];
		const struct model_catalog *catalog = kept->model->catalog;

		for (uint32_t object = 0; object < catalog->object_count; object++) {
			uint32_t owner = kept->model->first_owner + object;

			history->uses[owner] = add(*cell(&kept->known, &catalog->object[object]),
						   add(history->fresh[owner], *cell(&kept->saving, &catalog->object[object])));
		}
	}
	return history->uses;
}

/* ---- life ---- */

/* The engine's own history beside the checkpoint, where there is none of ours: a start, read and never written. */
static void read_engine_file(struct kept *kept)
{
	char path[PATH_MAX], message[LINE_BYTES];
	int r = snprintf(path, sizeof path, "%s/.coli_usage", kept->model->catalog->directory);

	if (r < 0 || (size_t)r >= sizeof path)
		return;
	r = read_file(&kept->known, path, message, sizeof message);
	if (r < 0)
		cnre_log(CNRE_LOG_NOTICE, "%s", message);
	kept->from_engine = r == 1;
}

static int open_usage(struct usage *ret_usage, const struct model_catalog *catalog)
{
	int r = usage_open(ret_usage, catalog->layer_count, catalog->expert_count, engine_name_id(catalog->family));

	if (r == 0)
		ret_usage->own_layers = catalog->main_layer_count;
	return r;
}

static int open_kept(struct kept *kept, const struct served_model *model, const char *folder)
{
	const struct model_catalog *catalog = model->catalog;
	char identity[2 * IDENTITY_BYTES_SHOWN + 1], message[LINE_BYTES];
	int r;

	kept->model = model;
	r = open_usage(&kept->known, catalog);
	if (r == 0)
		r = open_usage(&kept->saving, catalog);
	if (r == 0)
		r = open_usage(&kept->merged, catalog);
	if (r < 0)
		return r;
	if (folder != NULL) {
		/* Of a view the checkpoint's: which experts are used has nothing to do with how their bytes lie. */
		const char *name = catalog->source != NULL ? catalog->source->name : catalog->name;

		cnre_fingerprint_hex(catalog->fingerprint.identity, IDENTITY_BYTES_SHOWN, identity);
		r = snprintf(kept->path, sizeof kept->path, "%s/%s-%s.coli_usage", folder, name, identity);
		if (r < 0 || (size_t)r >= sizeof kept->path)
			return -ENAMETOOLONG;
		r = read_file(&kept->known, kept->path, message, sizeof message);
		if (r < 0)
			cnre_log(CNRE_LOG_WARNING, "%s", message);
		kept->is_broken = r < 0;
		if (r != 0)
			return 0;
	}
	read_engine_file(kept);
	return 0;
}

/*
 * Who may write into the folder may put another history there, or a link to a file that only this user can read. Group
 * members may be meant to; a folder of everybody's, also a sticky one, never is.
 */
int history_check_folder(const char *folder, char *message, size_t message_bytes)
{
	struct stat status;
	int error = 0;

	if (folder == NULL)
		return 0;
	if (stat(folder, &status) < 0)
		error = errno;
	else if (!S_ISDIR(status.st_mode))
		error = ENOTDIR;
	else if (access(folder, W_OK | X_OK) < 0)
		error = errno;
	if (error != 0)
		return cnre_message(message, message_bytes, -error,
				    "--usage %.300s: %s: name a folder that this user may write", folder, strerror(error));
	if ((status.st_uid == geteuid() || status.st_uid == 0) && (status.st_mode & S_IWOTH) == 0)
		return 0;
	return cnre_message(message, message_bytes, -EPERM,
			    "--usage %.300s: others may write there: name a folder of this user's own, or chmod o-w it", folder);
}

static void free_all(struct history *history)
{
	for (uint32_t i = 0; i < history->kept_count; i++) {
		usage_close(&history->kept[i].known);
		usage_close(&history->kept[i].saving);
		usage_close(&history->kept[i].merged);
	}
	free(history->fresh);
	free(history->uses);
	free(history);
}

int history_open(struct history **ret_history, const struct manager *manager, const char *folder, char *message,
		 size_t message_bytes)
{
	struct history *history;
	int r = history_check_folder(folder, message, message_bytes);

	if (r < 0)
		return r;
	history = calloc(1, sizeof *history);
	if (history == NULL)
		return cnre_message(message, message_bytes, -ENOMEM, "usage: out of memory");
	history->job = (struct worker_job){.run = save, .done = saved};
	history->due_ns = cnre_clock_now_ns() + HISTORY_SAVE_NS;
	history->fresh = calloc(manager->owner_count, sizeof *history->fresh);
	history->uses = calloc(manager->owner_count, sizeof *history->uses);
	r = history->fresh == NULL || history->uses == NULL ? -ENOMEM : 0;
	for (uint32_t i = 0; i < manager->model_count && r == 0; i++) {
		history->kept_count++;
		r = open_kept(&history->kept[i], &manager->model[i], folder);
	}
	if (r < 0) {
		free_all(history);
		return cnre_message(message, message_bytes, r, "usage: %s", strerror(-r));
	}
	*ret_history = history;
	return 0;
}

static int is_locked_out(const struct history *history)
{
	for (uint32_t i = 0; i < history->kept_count; i++)
		if (history->kept[i].result == -EWOULDBLOCK)
			return 1;
	return 0;
}

/* Another manager has a lock for as long as a file takes to be written, so it is tried for a second; no other error passes. */
static void save_last(struct history *history)
{
	const struct timespec pause = {.tv_nsec = CLOSE_PAUSE_NS};

	for (int tries = 0; history->is_counted && tries < CLOSE_TRIES; tries++) {
		if (tries > 0)
			(void)nanosleep(&pause, NULL);
		begin_save(history);
		save(&history->job);
		saved(&history->job);
		if (!is_locked_out(history))
			break;
	}
}

struct history *history_close(struct history *history)
{
	if (history == NULL)
		return NULL;
	if (history->is_saving) /* the worker has finished it, but nobody was told */
		saved(&history->job);
	save_last(history);
	free_all(history);
	return NULL;
}
