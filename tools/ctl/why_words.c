/* SPDX-License-Identifier: Apache-2.0 */
/* See why_words.h. */
#include "tools/ctl/why_words.h"

#include "tools/ctl/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *say_resident(struct fields *fields, const json_t *answer, char words[WHY_WORDS_BYTES])
{
	const json_t *policy = fields_object(fields, answer, "policy"), *rank = json_object_get(policy, "goes_after");
	uint64_t holders = fields_number(fields, answer, "holder_count"), slab = fields_number(fields, answer, "slab_bytes");
	uint64_t budget = fields_number(fields, answer, "budget_bytes"), resident = fields_number(fields, answer, "resident_bytes");
	char text[FORMAT_BYTES];

	if (holders > 0)
		(void)snprintf(words, WHY_WORDS_BYTES, "it is held by %" PRIu64 " clients, and what is held never goes", holders);
	else if (resident < budget && budget - resident >= slab)
		(void)snprintf(words, WHY_WORDS_BYTES, "there is room: %s of the budget are free, so nobody has to go",
			       format_bytes(budget - resident, text));
	else if (json_is_integer(rank) && json_integer_value(rank) == 0)
		(void)snprintf(words, WHY_WORDS_BYTES, "no other load needed its room yet: it is the next to go");
	else if (json_is_integer(rank))
		(void)snprintf(words, WHY_WORDS_BYTES, "%lld others are worth less and go first", (long long)json_integer_value(rank));
	else
		(void)snprintf(words, WHY_WORDS_BYTES, "thousands of others are worth less and go first");
	return words;
}

static const char *say_absent(struct fields *fields, const json_t *answer, char words[WHY_WORDS_BYTES])
{
	const json_t *policy = fields_object(fields, answer, "policy"), *rival = json_object_get(policy, "rival");
	const json_t *error = json_object_get(answer, "error");
	uint64_t loads = fields_number(fields, answer, "loads");

	if (fields_boolean(fields, answer, "queued"))
		(void)snprintf(words, WHY_WORDS_BYTES, "it is wanted, and waits for room or for its drive: see drives");
	else if (json_is_string(error))
		(void)snprintf(words, WHY_WORDS_BYTES, "its last load failed: %.200s; the next lookup tries again",
			       json_string_value(error));
	else if (loads == 0 && fields_number(fields, answer, "uses") == 0)
		(void)snprintf(words, WHY_WORDS_BYTES, "nobody has used it");
	else if (loads == 0)
		(void)snprintf(words, WHY_WORDS_BYTES, "it was used before this manager served it, and nobody has asked for it since");
	else if (json_is_object(rival))
		(void)snprintf(words, WHY_WORDS_BYTES,
			       "it was evicted for others, and is read again when it is asked for; layer %" PRIu64 " expert %" PRIu64
			       " would go for it%s",
			       fields_number(fields, rival, "layer"), fields_number(fields, rival, "expert"),
			       fields_boolean(fields, policy, "must_replace") ? ", since its layer has all that it may have" : "");
	else
		(void)snprintf(words, WHY_WORDS_BYTES, "it was evicted, and nobody has asked for it since");
	return words;
}

const char *why_words(struct fields *fields, const json_t *answer, char words[WHY_WORDS_BYTES])
{
	const char *state = fields_string(fields, answer, "state");

	if (strcmp(state, "ready") == 0)
		return say_resident(fields, answer, words);
	if (strcmp(state, "loading") == 0)
		(void)snprintf(words, WHY_WORDS_BYTES, "it is being read");
	else if (strcmp(state, "evicting") == 0)
		(void)snprintf(words, WHY_WORDS_BYTES, "its room is wanted; it goes unless somebody holds it");
	else
		return say_absent(fields, answer, words);
	return words;
}
