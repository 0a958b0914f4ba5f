/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole world for a system test: a temporary directory with a generated checkpoint, a real manager on a socket of its
 * own, and the manager's own numbers. Programs come from $CNRE_BUILD (default "build"). Everything is removed again.
 */
#ifndef CNRE_TESTS_WORLD_H
#define CNRE_TESTS_WORLD_H

#include <stdint.h>
#include <sys/types.h>

struct world {
	char directory[64];
	char model[192];
	char socket[96];
	char log[96];                     /* the manager's standard error */
	pid_t manager;                    /* 0: none runs */
};

/* A temporary directory, world-readable so that another user's client can read the checkpoint. */
void world_open(struct world *world);
void world_close(struct world *world);

/* cnre-gen into world->model; options: more arguments, NULL-terminated, or NULL. The default is 4 layers x 16 experts. */
void world_generate(struct world *world, const char *const *options);

/*
 * Starts cnre-managerd and waits for its "ready:" line. options as above; without "--keeper" among them there is no keeper,
 * and world->manager is the manager itself (with one it is the keeper: ask world_status for "pid"). The pid, or the negative exit status of a
 * manager that ended before it was ready.
 */
int world_start(struct world *world, const char *const *options);
/* The same as another user and with limits: called in the child before exec. */
int world_start_with(struct world *world, const char *const *options, void (*prepare)(void));
int world_stop(struct world *world, int signal); /* waits; the exit status as waitpid gives it */

/* A number of `cnrectl stats --json`; nested keys of status as "pool.used_bytes". UINT64_MAX: not there. */
uint64_t world_stat(struct world *world, const char *key);
uint64_t world_status(struct world *world, const char *path);

/* All that `cnrectl status --json` says; valid until the next call. */
const char *world_status_text(const struct world *world);
/* Waits until a manager of that epoch serves; and the same for the successor of a keeper's manager, which is killed. */
void world_await_epoch(const struct world *world, uint64_t epoch);
void world_kill_manager(struct world *world);

/* Runs a program of the build with arguments and returns its exit status; its output goes to `output` if not NULL. */
int world_run(const char *program, const char *const *arguments, char *output, size_t output_bytes);

/* Whether the manager's log contains a text. */
int world_log_has(const struct world *world, const char *text);

/* The path of a program of the build. */
const char *world_program(const char *name, char *path, size_t bytes);

/* Waits for a condition, looking every millisecond, at most `seconds`; 1 when it came true. For what has no event. */
int world_wait_until(int (*condition)(void *context), void *context, int seconds);

#endif
