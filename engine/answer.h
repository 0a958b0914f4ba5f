/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of the serving protocol: one line of JSON each, to be freed; NULL if memory ran out. */
#ifndef ENGINE_ANSWER_H
#define ENGINE_ANSWER_H

#include "engine/conversation.h"

char *answer_turn(const char *id, const struct turn_result *result, uint32_t steps);
char *answer_ended(const char *id);
char *answer_quit(void);

/* id NULL or "": the line had none that could be read. */
char *answer_error(const char *id, const char *reason);

/* What a front end needs to ask libcnre for this engine's prefixes. name NULL: it was given none. */
char *answer_identity(const char *name, const struct kv_identity *identity);

#endif
