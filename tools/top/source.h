/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples of a running manager: four questions, five with GPUs, on one connection, which is made anew for each sample, so
 * that a manager that was restarted is found again. How a manager is found and asked is tools/ctl's.
 */
#ifndef CNRE_TOOLS_TOP_SOURCE_H
#define CNRE_TOOLS_TOP_SOURCE_H

#include "tools/ctl/search.h"
#include "tools/top/options.h"

#include <jansson.h>

#define SOURCE_MODELS_MAX 32u
#define SOURCE_NAME_BYTES 128u

struct top_source {
	struct search_places places;
	const char *model;                /* the only one that is asked for; NULL: they are taken in turn */
	int stop_fd;                      /* readable: a key was pressed, and nobody waits for an answer any more; -1: none */
	uint32_t model_count;             /* 0: not known */
	char name[SOURCE_MODELS_MAX][SOURCE_NAME_BYTES];
};

/*
 * turn: which of the models, modulo their number. {"stats", "clients", "drives", "experts"}, each the manager's answer, and
 * "vram", as status has it, where GPUs were asked for. 0 and a new reference; -EINTR: stop_fd; or -errno with a message.
 */
int top_source_take(struct top_source *source, uint32_t turn, json_t **ret_sample, char message[TOP_MESSAGE_BYTES]);

#endif
