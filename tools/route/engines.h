/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engines and what was sent to them. Each has a connection, on which requests are answered in their order, and a
 * thread that reads the answers and writes them out, so that one slow engine holds up none of the others' answers.
 */
#ifndef TOOLS_ROUTE_ENGINES_H
#define TOOLS_ROUTE_ENGINES_H

#include "tools/route/options.h"
#include "tools/route/request.h"

#include <stdio.h>

#define ENGINES_PENDING_MAX 64u           /* requests of one engine without an answer; more wait */
#define ENGINES_IDENTITY_BYTES 4096

struct engines;

/* Connects to all. Returns 0, or an error with the reason in message. Answers go to output. */
int engines_open(struct engines **ret_engines, const struct route_options *options, FILE *output,
		 char message[ROUTE_MESSAGE_BYTES]);

/* Says that nothing more comes, waits for all answers, and closes. Answers that never came are said to be lost. */
void engines_close(struct engines *engines);

/* What an engine says about itself, one line of JSON, before engines_start. 0, or -EPIPE with the reason in message. */
int engines_identity(struct engines *engines, uint32_t engine, char ret_line[ENGINES_IDENTITY_BYTES],
		     char message[ROUTE_MESSAGE_BYTES]);

/* Begins to read answers. Returns 0, or an error of pthread_create. */
int engines_start(struct engines *engines);

/* The engine of that name if it lives, else -ENOENT. */
int engines_find(struct engines *engines, const char *name);
int engines_is_alive(struct engines *engines, uint32_t engine);

/* The living engine with the fewest requests, the first of equals; -ENOTCONN: none lives. */
int engines_least_busy(struct engines *engines);

/* Sends a line; waits while the engine has too many. why: how it was chosen, a constant. 0, or -EPIPE: it is gone. */
int engines_send(struct engines *engines, uint32_t engine, const char *line, const char *id, const char *why);

/* Writes an answer of our own. */
void engines_refuse(struct engines *engines, const char *id, const char *reason);

#endif
