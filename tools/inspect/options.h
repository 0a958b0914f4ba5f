/* SPDX-License-Identifier: Apache-2.0 */
/* The words of cnre-inspect's command line. */
#ifndef CNRE_TOOLS_INSPECT_OPTIONS_H
#define CNRE_TOOLS_INSPECT_OPTIONS_H

#include <stdint.h>

#define OPTIONS_MESSAGE_BYTES 1024
#define OPTIONS_SECONDS_MAX 86400.0
#define OPTIONS_TOP_MAX 100000u

struct options {
	const char *verb;                 /* NULL: none was named */
	const char *socket;               /* NULL: found as cnrectl finds it */
	const char *library;              /* NULL: found in the clients' memory maps */
	uint32_t manager;                 /* its process; 0: not said */
	double seconds;                   /* 0: until ^C */
	double interval;                  /* 0: one report at the end */
	double threshold;                 /* of leases */
	uint32_t top;                     /* lines of a list */
	int json, help, version;
};

/* 0, or -EINVAL with one line in message. Texts live as long as argv. */
int inspect_options_parse(int argc, char **argv, struct options *ret_options, char message[OPTIONS_MESSAGE_BYTES]);

#endif
