/* SPDX-License-Identifier: Apache-2.0 */
/* Samples in a file: a line that says what it is, then one line of JSON each. Both ways bounded; what is read is input. */
#ifndef CNRE_TOOLS_TOP_RECORD_H
#define CNRE_TOOLS_TOP_RECORD_H

#include "tools/top/options.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#define TOP_RECORD_BYTES_MAX (1ull << 30) /* of a file; then nothing more is written */
#define TOP_RECORD_LINE_MAX (8u << 20)

struct top_record {
	FILE *file;
	uint64_t bytes, bytes_max;
	int is_full;
	char *line;                       /* of a reader */
	uint64_t line_number;
};

/* A new file, never one that is there. 0 or -errno with a message. */
int top_record_create(struct top_record *record, const char *path, char message[TOP_MESSAGE_BYTES]);
/* 0, also when it is full; or -errno with a message. */
int top_record_put(struct top_record *record, const json_t *sample, char message[TOP_MESSAGE_BYTES]);

/* 0, or -errno with a message: -EBADMSG it is no recording. */
int top_record_open(struct top_record *record, const char *path, char message[TOP_MESSAGE_BYTES]);
/* 1 and a new reference, 0 at the end, -EBADMSG, -E2BIG, -ENOMEM with a message that has the line. */
int top_record_next(struct top_record *record, json_t **ret_sample, char message[TOP_MESSAGE_BYTES]);

/* 0 or -errno: what was written may not have reached the file. One of zeros is fine. */
int top_record_close(struct top_record *record);

#endif
