/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of cnre-top. Pure. */
#ifndef CNRE_TOOLS_TOP_OPTIONS_H
#define CNRE_TOOLS_TOP_OPTIONS_H

#define TOP_MESSAGE_BYTES 1024
#define TOP_INTERVAL_S 1.0
#define TOP_INTERVAL_MIN_S 0.2    /* a sample is four questions or five to the manager's core thread */
#define TOP_INTERVAL_MAX_S 3600.0
#define TOP_ROWS_MIN 10
#define TOP_ROWS_MAX 200
#define TOP_COLUMNS_MIN 40
#define TOP_COLUMNS_MAX 400

struct top_options {
	const char *socket, *model, *record, *play; /* NULL: not given */
	double interval_s;
	int once, no_color, help, version;
	int rows, columns;                /* of --once */
};

/* 0, or -EINVAL with the reason in message; *ret_options is set on success only. */
int top_options_parse(int argc, char **argv, struct top_options *ret_options, char message[TOP_MESSAGE_BYTES]);
const char *top_options_help(void);

#endif
