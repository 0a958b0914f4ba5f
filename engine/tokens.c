/* SPDX-License-Identifier: Apache-2.0 */
/* See tokens.h. */
#include "engine/tokens.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char blanks[] = " \t\r\n,";

static bool is_id_text(const char *text)
{
	return *text != '\0' && text[strspn(text, "0123456789 \t\r\n,")] == '\0';
}

/* One id at *text, which is moved past it. */
static int parse_id(const char **text, uint32_t vocab, uint32_t *ret_id)
{
	uint64_t id = 0;

	for (; **text >= '0' && **text <= '9'; (*text)++) {
		id = id * 10 + (uint64_t)(**text - '0');
		if (id >= vocab)
			return -EINVAL;
	}
	*ret_id = (uint32_t)id;
	return 0;
}

static int parse(const char *text, uint32_t vocab, uint32_t **ret_tokens, uint32_t *ret_count, char *message)
{
	uint32_t *tokens = calloc(strlen(text) / 2 + 1, sizeof *tokens); /* an id and a blank are two bytes */
	uint32_t count = 0;

	if (!tokens)
		return engine_fail(message, -ENOMEM, "out of memory for the prompt");
	for (text += strspn(text, blanks); *text != '\0'; text += strspn(text, blanks)) {
		if (count == TOKENS_MAX || parse_id(&text, vocab, &tokens[count]) < 0) {
			free(tokens);
			return engine_fail(message, -EINVAL,
					   "prompt token %u: ids are below the vocabulary's %u, and at "
					   "most %u of them",
					   count + 1, vocab, TOKENS_MAX);
		}
		count++;
	}
	if (count == 0) {
		free(tokens);
		return engine_fail(message, -EINVAL, "the prompt is empty; --tokens needs at least one id");
	}
	*ret_tokens = tokens;
	*ret_count = count;
	return 0;
}

/* The whole file as a string, to be freed. */
static int read_file(const char *path, char **ret_text)
{
	FILE *file = fopen(path, "re");
	char *text;
	size_t length;
	int error = 0;

	if (!file)
		return -errno;
	text = malloc(TOKENS_FILE_BYTES_MAX + 1);
	length = text ? fread(text, 1, TOKENS_FILE_BYTES_MAX + 1, file) : 0;
	if (!text)
		error = -ENOMEM;
	else if (ferror(file))
		error = -EIO;
	else if (length > TOKENS_FILE_BYTES_MAX)
		error = -E2BIG;
	(void)fclose(file); /* read only */
	if (error < 0) {
		free(text);
		return error;
	}
	text[length] = '\0';
	*ret_text = text;
	return 0;
}

int tokens_load(const char *text, uint32_t vocab, uint32_t **ret_tokens, uint32_t *ret_count,
		char message[ENGINE_MESSAGE_BYTES])
{
	char *file_text = NULL;
	int error;

	if (is_id_text(text))
		return parse(text, vocab, ret_tokens, ret_count, message);
	error = read_file(text, &file_text);
	if (error < 0)
		return engine_fail(message, error, "--tokens \"%.100s\" is neither token ids nor a readable file: %s",
				   text, strerror(-error));
	if (is_id_text(file_text))
		error = parse(file_text, vocab, ret_tokens, ret_count, message);
	else
		error = engine_fail(message, -EINVAL, "%.200s: holds something else than token ids", text);
	free(file_text);
	return error;
}
