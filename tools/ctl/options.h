/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of cnrectl: options may stand before, between or after the words of the verb; those that a verb has of its
 * own, behind the words that they belong to. Pure.
 */
#ifndef CNRE_TOOLS_CTL_OPTIONS_H
#define CNRE_TOOLS_CTL_OPTIONS_H

#include "tools/ctl/verb.h"

#define OPTIONS_WORDS_MAX 32              /* with a verb's own options and their values */
#define OPTIONS_PLAIN_MAX 8               /* without */
#define OPTIONS_INTERVAL_S 2.0     /* of --watch without a number */
#define OPTIONS_INTERVAL_MIN_S 0.05
#define OPTIONS_INTERVAL_MAX_S 86400.0

struct options {
	const char *socket;               /* NULL: search */
	int as_json;
	int wants_help;
	int wants_version;
	int watches;
	double interval_s;
	int word_count, plain_count;
	char *word[OPTIONS_WORDS_MAX];    /* of argv; "--name=value" of a verb's own option is split into two there */
};

/*
 * options_parse - argv[1..] into options
 *
 * A number right after --watch is its interval: no verb is a number.
 * Returns:  0, or -EINVAL with the reason in message; *ret_options is set on success only.
 */
int options_parse(int argc, char **argv, struct options *ret_options, char message[CTL_MESSAGE_BYTES]);

#endif
