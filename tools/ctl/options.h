/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of cnrectl: options may stand before, between or after the words of the verb. Pure. */
#ifndef CNRE_TOOLS_CTL_OPTIONS_H
#define CNRE_TOOLS_CTL_OPTIONS_H

#include "tools/ctl/verb.h"

#define OPTIONS_WORDS_MAX 8
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
	int word_count;
	char *word[OPTIONS_WORDS_MAX];    /* of argv */
};

/*
 * options_parse - argv[1..] into options
 *
 * A number right after --watch is its interval: no verb is a number.
 * Returns:  0, or -EINVAL with the reason in message; *ret_options is set on success only.
 */
int options_parse(int argc, char **argv, struct options *ret_options, char message[CTL_MESSAGE_BYTES]);

#endif
