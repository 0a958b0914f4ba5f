/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The history of expert uses as Colibri's engines keep it (`.coli_usage`): text, three integers a line. Header lines have
 * a negative first field: `-1 layers experts`, `-2 1 engine` (FNV-1a of the engine's name); text without headers is taken
 * too. An empty file is an empty history. Text from a file is input: what is out of range or not three integers is
 * refused with the line, and nothing is changed.
 */
#ifndef CNRE_MODEL_USAGE_H
#define CNRE_MODEL_USAGE_H

#include <stddef.h>
#include <stdint.h>

#define USAGE_BYTES_MAX (64u << 20)

struct usage {
	uint32_t layers, experts;    /* rows of `count`; layers by checkpoint number */
	uint32_t engine;             /* usage_engine of its name; 0: any */
	uint32_t *count;             /* [layers * experts], saturating */
};

uint32_t usage_engine(const char *name); /* FNV-1a, 32 bits */

int usage_open(struct usage *ret_usage, uint32_t layers, uint32_t experts, uint32_t engine); /* all 0; 0 or -ENOMEM */
void usage_close(struct usage *usage);

/*
 * Adds what the text holds to what is there. 0; -EINVAL (message: line and reason), -ESTALE (other dimensions), -EXDEV
 * (another engine's history). Nothing is added on failure.
 */
int usage_read_text(struct usage *usage, const char *text, size_t bytes, char *message, size_t message_bytes);
/* The text, in memory of its own (free). 0 or -ENOMEM. */
int usage_write_text(const struct usage *usage, char **ret_text, size_t *ret_bytes);

#endif
