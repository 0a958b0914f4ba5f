/* SPDX-License-Identifier: Apache-2.0 */
/* A prompt as token ids: the text of --tokens, or a file of the same form. */
#ifndef ENGINE_TOKENS_H
#define ENGINE_TOKENS_H

#include "engine/message.h"

#include <stdint.h>

#define TOKENS_MAX (1u << 20)
#define TOKENS_FILE_BYTES_MAX (16u << 20)

/*
 * tokens_load - read token ids
 *
 * text is the ids themselves if it holds nothing but digits, blanks and commas, else the name of a file with them.
 *
 * Returns:  0, -EINVAL (not ids, none, too many, or one not below vocab), -ENOMEM, an error of open or read;
 *           message says which. The caller frees *ret_tokens. Outputs are set on success only.
 */
int tokens_load(const char *text, uint32_t vocab, uint32_t **ret_tokens, uint32_t *ret_count,
		char message[ENGINE_MESSAGE_BYTES]);

#endif
