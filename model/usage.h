/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The history of expert uses as Colibri's engines keep it (`.coli_usage`): text, three integers a line. Header lines have
 * a negative first field: `-1 layers experts`, `-2 1 engine` (FNV-1a of the engine's name); others are room for later
 * headers and passed over, as engines do. Text without headers is taken too, and Inkling's binary histories of before.
 * An empty file is an empty history. What a file says is input: what is out of range or malformed is refused with the
 * line, and nothing is changed.
 *
 * `-1` counts the layers of the model proper. Its rows may be one more: an engine that predicts further tokens (GLM) keeps
 * their row behind the last layer. It is taken where the model has such a layer, and passed over where it has not.
 */
#ifndef CNRE_MODEL_USAGE_H
#define CNRE_MODEL_USAGE_H

#include <stddef.h>
#include <stdint.h>

#define USAGE_BYTES_MAX (64u << 20)

struct usage {
	uint32_t layers, experts;    /* rows of `count`; layers by checkpoint number */
	uint32_t own_layers;         /* of the model proper, as `-1` says: layers, or less */
	uint32_t engine;             /* usage_engine of its name; 0: any */
	uint32_t writer;             /* the engine that a text named; 0: none did */
	uint32_t *count;             /* [layers * experts], saturating */
};

uint32_t usage_engine(const char *name); /* FNV-1a, 32 bits */

int usage_open(struct usage *ret_usage, uint32_t layers, uint32_t experts, uint32_t engine); /* all 0; 0 or -ENOMEM */
void usage_close(struct usage *usage);
void usage_count(struct usage *usage, uint32_t layer, uint32_t expert, uint32_t uses);

/* Text or Inkling's binary, by its first bytes; as usage_read_text. */
int usage_read(struct usage *usage, const void *data, size_t bytes, char *message, size_t message_bytes);

/*
 * Adds what the text holds to what is there. 0; -EINVAL (message: line and reason), -ESTALE (other dimensions), -EXDEV
 * (another engine's history). Nothing is added on failure.
 */
int usage_read_text(struct usage *usage, const char *text, size_t bytes, char *message, size_t message_bytes);
/*
 * Magic, layers, experts, then a dense table of counts, all of 32 bits in this machine's order. Only Inkling's engine
 * wrote such files, so -EXDEV where `engine` is another's.
 */
int usage_is_binary(const void *data, size_t bytes);
int usage_read_binary(struct usage *usage, const void *data, size_t bytes, char *message, size_t message_bytes);
/* The text, in memory of its own (free). 0 or -ENOMEM. */
int usage_write_text(const struct usage *usage, char **ret_text, size_t *ret_bytes);

#endif
