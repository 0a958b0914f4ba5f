/* SPDX-License-Identifier: Apache-2.0 */
/* The words of cnrectl inspect, and what is made of the checkpoint that they name. */
#ifndef CNRE_TOOLS_CTL_INSPECT_WORDS_H
#define CNRE_TOOLS_CTL_INSPECT_WORDS_H

#include "tools/ctl/verb.h"

#include <stdint.h>

#define INSPECT_FURTHER_MAX 16u

struct inspect_words {
	const char *directory;
	const char *family_file;          /* NULL: families that are built in */
	const char *further[INSPECT_FURTHER_MAX]; /* other directories with shards */
	uint32_t further_count;
};

/* 0, or -EINVAL with the reason in message; *ret_words is set on success only. */
int inspect_words_parse(int argc, char *const *argv, struct inspect_words *ret_words, char message[CTL_MESSAGE_BYTES]);
int inspect_words_take_option(int argc, char *const *argv, const char *name);

/* Reads the checkpoint's headers; 0 and a new reference, or -errno with a message. */
int inspect_model(const struct inspect_words *words, json_t **ret_answer, char message[CTL_MESSAGE_BYTES]);

#endif
