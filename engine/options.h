/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of cnre-olmoe. Strings point into argv. */
#ifndef ENGINE_OPTIONS_H
#define ENGINE_OPTIONS_H

#include "engine/expert_source.h"
#include "engine/message.h"

#include <stdbool.h>
#include <stdint.h>

#define OPTIONS_STEPS_MAX (1u << 20)
#define OPTIONS_POSITIONS_MAX (1u << 20)
#define OPTIONS_POSITIONS_DEFAULT 4096u
#define OPTIONS_CONVERSATIONS_MAX 1024u
#define OPTIONS_CONVERSATIONS_DEFAULT 4u

enum cache_mode { CACHE_CNRE, CACHE_MMAP, CACHE_PRIVATE };

struct options {
	const char *model, *tokens, *socket, *name, *route_trace, *cache;
	const char *kernel;               /* NULL: the best for this CPU */
	const char *view;                 /* NULL: experts as in the checkpoint; else MATRIX_ROWS16_VIEW */
	const char *kv_namespace, *salt;  /* NULL: the user's own, none */
	const char *listen;               /* NULL: serve standard input */
	struct private_size private_size;
	uint64_t reserve_bytes;
	enum cache_mode mode;
	uint32_t steps, threads;          /* threads 0: as many as the process may use CPUs */
	uint32_t conversations, positions; /* positions 0: the default, or what the model has */
	bool kv, serve, json, progress, help, version;
};

/*
 * Returns 0, or -EINVAL with the reason in message; *ret_options is set on success only. With --help or --version
 * nothing else is checked.
 */
int options_parse(struct options *ret_options, int argc, char **argv, char message[ENGINE_MESSAGE_BYTES]);

/* The text of --help. */
const char *options_help(void);

#endif
