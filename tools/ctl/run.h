/* SPDX-License-Identifier: Apache-2.0 */
/* One verb, asked once or again and again. */
#ifndef CNRE_TOOLS_CTL_RUN_H
#define CNRE_TOOLS_CTL_RUN_H

#include "tools/ctl/search.h"
#include "tools/ctl/verb.h"

struct run {
	const struct verb *verb;
	const char *request;              /* JSON text */
	int argc;
	char *const *argv;                /* the words of the verb; for those that keep what they get */
	const int *file;                  /* a descriptor that goes with it; NULL: none */
	struct search_places places;
	int is_order;                     /* the answer must also say that it was carried out */
	int as_json;                      /* 1: the answer as it is, one line; 0: for a person */
	int stop_fd;                      /* readable: end; -1: none */
};

/*
 * run_once - find the manager, ask, render
 *
 * @ret_output   allocated text with its newline; set on success only
 * @message      set on failure
 *
 * Returns:  0 or -errno.
 */
int run_once(const struct run *run, char **ret_output, char message[CTL_MESSAGE_BYTES]);

/* An answer as run->as_json says; takes the reference. 0 with allocated text, or -errno with a message. */
int run_render(const struct run *run, json_t *answer, char **ret_output, char message[CTL_MESSAGE_BYTES]);

/*
 * run_watch - run_once every interval until stop_fd is readable
 *
 * A first failure ends it. Later ones do not: a manager that restarts is found again, and until then one line on err
 * says, once, what is missing. With as_json out gets nothing but answers. A terminal is redrawn, other output grows.
 * Returns:  0 after stop_fd, or -errno (message set).
 */
int run_watch(const struct run *run, double interval_s, FILE *out, FILE *err, char message[CTL_MESSAGE_BYTES]);

#endif
