/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A generated checkpoint, a real manager and its numbers, for plain programs: as world.h, but nothing asserts (criterion
 * is not linked), failures are returned, and the manager may be a keeper with a manager below it.
 */
#ifndef CNRE_TESTS_DAEMON_H
#define CNRE_TESTS_DAEMON_H

#include <jansson.h>
#include <stddef.h>
#include <sys/types.h>

#define DAEMON_ARGUMENTS_MAX 48

struct daemon {
	char directory[64];
	char model[96], socket[96], log[96];
	char reason[512];                 /* of the last failure */
	pid_t pid;                        /* what was started: the keeper, or the manager itself; 0: none */
	const char *environment[5];       /* NAME=value for the manager only, NULL-terminated */
};

int daemon_open(struct daemon *daemon); /* a temporary directory; 0 or -errno */
void daemon_close(struct daemon *daemon);

/* Runs a program of $CNRE_BUILD (default "build"); arguments end with NULL. Exit status, 128 + signal, or -errno. */
int daemon_run(const char *program, const char *const *arguments, char *output, size_t output_bytes);

int daemon_generate(struct daemon *daemon, const char *const *options); /* cnre-gen; 0 or -1 with the reason */

/* Starts cnre-managerd with --model, --socket and these options and waits for its "ready:" line. 0 or -1 with the reason. */
int daemon_start(struct daemon *daemon, const char *const *options);
/* The exit status after SIGTERM, or 128 + signal; -1: it did not end within the seconds and was killed. */
int daemon_stop(struct daemon *daemon, int seconds);

/* Whether this build of the manager starts a keeper: then it survives its own death. */
int daemon_has_keeper(void);
/* The process that serves now: below the keeper, or the one that was started; 0: between two incarnations. */
pid_t daemon_manager_pid(const struct daemon *daemon);

/* `cnrectl VERB --json`, or NULL. */
json_t *daemon_ask(struct daemon *daemon, const char *verb);
/* An integer in an answer by its path ("pool.used_bytes"), -1: not there. */
long long daemon_number(const json_t *answer, const char *path);

#endif
