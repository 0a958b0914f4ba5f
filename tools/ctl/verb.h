/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A verb of cnrectl: how its words become a request, and how the manager's answer becomes text for a person. One file a
 * verb. A verb neither talks to the manager nor writes to standard output or error: main.c does.
 */
#ifndef CNRE_TOOLS_CTL_VERB_H
#define CNRE_TOOLS_CTL_VERB_H

#include "tools/ctl/fields.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>

#define CTL_MESSAGE_BYTES 1024 /* one line for people: object, reason, what to do */
#define VERB_NO_FILE INT_MIN
#define VERB_FILE_NS (3600 * 1000000000LL) /* for an answer that comes when a whole file was read or written */
#define VERB_FOLLOW_NS (30 * 1000000000LL)
#define VERB_FOLLOW_EVERY_NS (20 * 1000000LL)

/* How a verb asks more than once; main.c's manager, or a test's. Both return 0 or -errno, ask with a message. */
struct verb_asker {
	void *context;
	int (*ask)(void *context, const char *request, json_t **ret_answer, char message[CTL_MESSAGE_BYTES]);
	int (*pause)(void *context, double seconds); /* -EINTR: it is time to stop */
};

struct verb {
	const char *name;
	const char *arguments;            /* as the usage text shows them; "" for none */
	const char *summary;
	/*
	 * The request for these words (argv[0] is the verb's name), a new reference. Returns 0, or -EINVAL with the
	 * reason in message: a usage error.
	 */
	int (*request)(int argc, char *const *argv, json_t **ret_request, char message[CTL_MESSAGE_BYTES]);
	/*
	 * Makes the answer from several, a new reference: 0, or -errno with a message. NULL: the answer to the request is all.
	 */
	int (*gather)(int argc, char *const *argv, const struct verb_asker *asker, json_t **ret_answer,
		      char message[CTL_MESSAGE_BYTES]);
	/* 1: the option `name` belongs to these words and takes a value; both become words. NULL: there are no such options. */
	int (*takes_option)(int argc, char *const *argv, const char *name);
	/* 1: no manager is needed for these words; answer_here makes the answer that one would give. NULL: one always is. */
	int (*is_local)(int argc, char *const *argv);
	/* 0 and a new reference, or -errno with a message. NULL where is_local is. */
	int (*answer_here)(int argc, char *const *argv, json_t **ret_answer, char message[CTL_MESSAGE_BYTES]);
	/* A descriptor that goes with the request, for the caller to close; VERB_NO_FILE; or -errno with a message. May be NULL. */
	int (*file)(int argc, char *const *argv, char message[CTL_MESSAGE_BYTES]);
	void (*abandon_file)(int argc, char *const *argv); /* the manager did not take it; NULL: then nothing is to be done */
	int64_t file_ns;                  /* for the answer to a request with a file; 0: as for any other */
	/* What to ask on, until is_final says that nothing more will change (VERB_FOLLOW_NS at most). NULL: once is enough. */
	const char *follow_request;
	int (*is_final)(const json_t *answer);
	int watches;                      /* 1: where a person looks on, it is asked for again and again by itself */
	int (*is_order)(int argc, char *const *argv); /* 1: it changes something, so that nobody means it repeated. NULL: no */
	/* 0, or -errno with a message: an order that was taken and came to nothing. NULL: none does. */
	int (*check)(const json_t *answer, char message[CTL_MESSAGE_BYTES]);
	/*
	 * Keeps what the answer brought where the words say, and takes it out of the answer: 0, or -errno with a message. NULL:
	 * an answer is only shown.
	 */
	int (*keep)(int argc, char *const *argv, json_t *answer, char message[CTL_MESSAGE_BYTES]);
	/* The answer for a person. Strings in it are printable already; a missing field is recorded in fields. */
	void (*print)(FILE *out, struct fields *fields, const json_t *answer);
};

extern const struct verb verb_status;
extern const struct verb verb_stats;
extern const struct verb verb_clients;
extern const struct verb verb_layers;
extern const struct verb verb_experts;
extern const struct verb verb_why;
extern const struct verb verb_explain;
extern const struct verb verb_drives;
extern const struct verb verb_top;
extern const struct verb verb_kv;
extern const struct verb verb_set;
extern const struct verb verb_policy;
extern const struct verb verb_trace;
extern const struct verb verb_reset;
extern const struct verb verb_usage;
extern const struct verb verb_warm;
extern const struct verb verb_inspect;
extern const struct verb verb_iobench;

void warm_print(FILE *out, struct fields *fields, const json_t *answer); /* of verb_warm; status shows it, too */

/* For verbs that take no arguments. */
int verb_request_bare(int argc, char *const *argv, json_t **ret_request, char message[CTL_MESSAGE_BYTES]);

/* is_order of verbs that are one whatever their words. */
int verb_is_order(int argc, char *const *argv);

/* NULL: no such verb. */
const struct verb *verb_find(const char *name);
/* All of them, in the order of the usage text; NULL ends the list. */
extern const struct verb *const verb_table[];

#endif
