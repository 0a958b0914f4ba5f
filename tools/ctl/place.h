/* SPDX-License-Identifier: Apache-2.0 */
/* Words that name a layer, an expert and a model: of experts and why. */
#ifndef CNRE_TOOLS_CTL_PLACE_H
#define CNRE_TOOLS_CTL_PLACE_H

#include "tools/ctl/verb.h"

/* takes_option of verbs with "--model NAME". */
int place_takes_option(int argc, char *const *argv, const char *name);

/*
 * {"verb": argv[0]} and what the words say: so many numbers at most, under these keys in turn, and "--model NAME". How many
 * numbers there were, or -EINVAL with a message, or -ENOMEM.
 */
int place_request(int argc, char *const *argv, const char *const *keys, int key_count, json_t **ret_request,
		  char message[CTL_MESSAGE_BYTES]);

#endif
