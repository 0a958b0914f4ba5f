/* SPDX-License-Identifier: Apache-2.0 */
/* See request.h. */
#include "tools/route/request.h"

#include <stdio.h>
#include <string.h>

static const char blanks[] = " \t\r\n";

/* The next word, whose length is *ret_length; 0 at the end. Moves *line behind it. */
static const char *next_word(const char **line, size_t *ret_length)
{
	const char *word = *line + strspn(*line, blanks);

	*ret_length = strcspn(word, blanks);
	*line = word + *ret_length;
	return word;
}

static enum route_verb verb_of(const char *word, size_t length)
{
	static const struct {
		const char *word;
		enum route_verb verb;
	} verbs[] = {{"generate", ROUTE_GENERATE},
		     {"append", ROUTE_CONTINUE},
		     {"end", ROUTE_CONTINUE},
		     {"quit", ROUTE_QUIT}};

	for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
		if (strlen(verbs[i].word) == length && memcmp(verbs[i].word, word, length) == 0)
			return verbs[i].verb;
	return ROUTE_OTHER;
}

/* 1 if the word is a token id. */
static int read_token(const char *word, size_t length, int32_t *ret_token)
{
	uint64_t number = 0;

	for (size_t i = 0; i < length; i++) {
		if (word[i] < '0' || word[i] > '9')
			return 0;
		number = number * 10 + (uint64_t)(word[i] - '0');
		if (number > INT32_MAX)
			return 0;
	}
	*ret_token = (int32_t)number;
	return length > 0;
}

void route_request_read(struct route_request *ret_request, const char *line, int32_t *tokens)
{
	struct route_request request = {0};
	size_t length;
	const char *word = next_word(&line, &length);

	request.verb = verb_of(word, length);
	word = next_word(&line, &length);
	if (length < sizeof request.id)
		(void)snprintf(request.id, sizeof request.id, "%.*s", (int)length, word);
	if (request.verb == ROUTE_GENERATE) {
		(void)next_word(&line, &length); /* steps */
		word = next_word(&line, &length);
		while (request.token_count < ROUTE_TOKENS_MAX &&
		       read_token(word, length, &tokens[request.token_count])) {
			request.token_count++;
			word = next_word(&line, &length);
		}
	}
	*ret_request = request;
}
