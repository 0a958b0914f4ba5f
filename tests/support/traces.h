/* SPDX-License-Identifier: Apache-2.0 */
/* Small traces for tests of tools/sim: text or bytes become files of a folder of their own, and are loaded. */
#ifndef CNRE_TESTS_SUPPORT_TRACES_H
#define CNRE_TESTS_SUPPORT_TRACES_H

#include "tests/support/folder.h"
#include "tools/sim/trace.h"

#define TRACES_MAX 4u

struct traces {
	struct folder folder;
	struct sim_load load;        /* for the test to change */
	const char *path[TRACES_MAX];
	char name[TRACES_MAX][128];
	uint32_t count;
	struct sim_trace *trace;     /* NULL unless loaded */
	struct sim_geometry *geometry;
	char message[512];
};

void traces_make(struct traces *traces);
void traces_add(struct traces *traces, const char *name, const void *bytes, size_t count);
void traces_add_text(struct traces *traces, const char *name, const char *text);
void traces_add_path(struct traces *traces, const char *path); /* a file from elsewhere */
int traces_load(struct traces *traces);                  /* what sim_traces_open says */
void traces_remove(struct traces *traces);

/* Text alone: 1 if it is refused, and the message has `expected` in it. The message goes to ret_message. */
int traces_refuses(enum sim_format format, const char *text, const char *expected, char ret_message[512]);
/* All rows as text, `call layer/token[tokens]:expert,…;` a row, with numbers of the checkpoint. */
void traces_describe(const struct traces *traces, uint32_t index, char *text, size_t text_bytes);

#endif
