/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often each expert was used, from any file that says so: a history of Colibri's engines (usage.h); a `ROUTE_TRACE`
 * (`call row layer expert:gate ...`); or lines `layer expert`, as `V4_REPLAY_TRACE` has them or a person writes them, the
 * most important first. Which of them it is, its first line shows. For a trace or lines only the counts are taken, and
 * whether lines are missing is not looked at. What a file says is input: one malformed line and all of it is refused.
 */
#ifndef CNRE_MODEL_USE_LIST_H
#define CNRE_MODEL_USE_LIST_H

#include "model/usage.h"

#define USE_LIST_BYTES_MAX USAGE_BYTES_MAX

enum use_list_kind { USE_LIST_HISTORY, USE_LIST_BINARY, USE_LIST_TRACE, USE_LIST_PAIRS, USE_LIST_KINDS };

struct use_list {
	struct usage usage;
	uint32_t *first;             /* [layers * experts] where it stands in the file, from 1; 0: nowhere */
	enum use_list_kind kind;
	uint32_t places;             /* the last number in `first` */
};

/* As usage_open; own_layers: see usage.h. All 0. 0 or -ENOMEM. */
int use_list_open(struct use_list *ret_list, uint32_t layers, uint32_t own_layers, uint32_t experts, uint32_t engine);
void use_list_close(struct use_list *list); /* all 0 is fine */

/* Into a list that holds nothing yet. 0, or the errors of usage_read with one line; then what it holds is of no use. */
int use_list_read(struct use_list *list, const void *data, size_t bytes, char *message, size_t message_bytes);

const char *use_list_kind_name(enum use_list_kind kind);

#endif
