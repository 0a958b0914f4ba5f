/* SPDX-License-Identifier: Apache-2.0 */
/* See request.h. Lines come from strangers. */
#include "engine/request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char blanks[] = " \t\r";
static const char id_characters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

struct form {
	const char *word;
	enum request_verb verb;
	int has_id, has_tokens;
	uint32_t tokens_min;
};

static const struct form forms[] = {
	{"generate", REQUEST_GENERATE, 1, 1, 1}, {"append", REQUEST_APPEND, 1, 1, 0}, {"end", REQUEST_END, 1, 0, 0},
	{"identity", REQUEST_IDENTITY, 0, 0, 0}, {"quit", REQUEST_QUIT, 0, 0, 0},
};

static const struct form *find_form(const char *word)
{
	for (size_t i = 0; word && i < sizeof forms / sizeof forms[0]; i++)
		if (strcmp(forms[i].word, word) == 0)
			return &forms[i];
	return NULL;
}

/* Decimal digits and nothing else, at most max. */
static int parse_number(const char *word, uint32_t max, uint32_t *ret_number)
{
	uint64_t number = 0;

	if (*word == '\0')
		return -EINVAL;
	for (; *word; word++) {
		if (*word < '0' || *word > '9')
			return -EINVAL;
		number = number * 10 + (uint64_t)(*word - '0');
		if (number > max)
			return -EINVAL;
	}
	*ret_number = (uint32_t)number;
	return 0;
}

static int parse_id(struct request *request, const char *word, char *message)
{
	if (!word || strlen(word) >= REQUEST_ID_BYTES || word[strspn(word, id_characters)] != '\0')
		return engine_fail(message, -EINVAL,
				   "the second word is an id of 1 to %d letters, digits, '.', '_' or '-'",
				   REQUEST_ID_BYTES - 1);
	(void)snprintf(request->id, sizeof request->id, "%s", word);
	return 0;
}

static int parse_steps(struct request *request, const char *word, const struct request_bounds *bounds, char *message)
{
	if (!word || parse_number(word, bounds->positions, &request->steps) < 0 || request->steps == 0)
		return engine_fail(message, -EINVAL, "the third word is the number of tokens to generate, 1 to %u",
				   bounds->positions);
	return 0;
}

static int parse_tokens(struct request *request, char **rest, const struct request_bounds *bounds, char *message)
{
	char *word;

	while ((word = strtok_r(NULL, blanks, rest)) != NULL) {
		if (request->count == bounds->positions)
			return engine_fail(message, -EINVAL, "more than %u tokens; send fewer or raise --positions",
					   bounds->positions);
		if (parse_number(word, bounds->vocab - 1, &bounds->tokens[request->count]) < 0)
			return engine_fail(message, -EINVAL, "token %u is not an id from 0 to %u", request->count + 1,
					   bounds->vocab - 1);
		request->count++;
	}
	return 0;
}

int request_parse(struct request *ret_request, char *line, const struct request_bounds *bounds,
		  char message[ENGINE_MESSAGE_BYTES])
{
	char *rest = NULL;
	const struct form *form = find_form(strtok_r(line, blanks, &rest));
	struct request request = {.tokens = bounds->tokens};
	int error;

	if (!form)
		return engine_fail(
			message, -EINVAL,
			"send one of: generate ID STEPS TOKEN..., append ID STEPS TOKEN..., end ID, identity, quit");
	request.verb = form->verb;
	if (form->has_id && (error = parse_id(&request, strtok_r(NULL, blanks, &rest), message)) < 0)
		return error;
	if (form->has_tokens && ((error = parse_steps(&request, strtok_r(NULL, blanks, &rest), bounds, message)) < 0 ||
				 (error = parse_tokens(&request, &rest, bounds, message)) < 0))
		return error;
	if (strtok_r(NULL, blanks, &rest))
		return engine_fail(message, -EINVAL, "%s takes fewer words; leave the rest out", form->word);
	if (request.count < form->tokens_min)
		return engine_fail(message, -EINVAL, "%s needs at least one token", form->word);
	*ret_request = request;
	return 0;
}
