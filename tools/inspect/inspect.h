/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One look at a manager: what a verb is, and what all of them have. A verb takes events, and makes a report of them as JSON,
 * from which the text for people is printed. Only main.c and a verb's print write to standard output.
 */
#ifndef CNRE_TOOLS_INSPECT_INSPECT_H
#define CNRE_TOOLS_INSPECT_INSPECT_H

#include "tools/inspect/event.h"
#include "tools/inspect/options.h"
#include "tools/inspect/preflight.h"
#include "tools/inspect/programs.h"
#include "tools/inspect/subject.h"

#include <jansson.h>
#include <stdio.h>

#define INSPECT_MESSAGE_BYTES 1024
#define INSPECT_NOTES_MAX 32u

_Static_assert(INSPECT_MESSAGE_BYTES == CTL_MESSAGE_BYTES && INSPECT_MESSAGE_BYTES == PREFLIGHT_MESSAGE_BYTES &&
		       INSPECT_MESSAGE_BYTES == OPTIONS_MESSAGE_BYTES,
	       "messages are passed on");

enum inspect_where { IN_MANAGER, IN_LIBRARY };

struct inspect_probe {                    /* a verb wants it; name NULL ends a list */
	enum inspect_where where;
	enum programs_probe_at at;
	const char *name;
	enum event_kind kind;
	int is_optional;                  /* without it the verb says less */
};

struct inspect;

struct inspect_verb {
	const char *name, *summary;
	int wants_reads;
	const struct inspect_probe *probes;
	int (*open)(struct inspect *inspect, char message[INSPECT_MESSAGE_BYTES]); /* before anything is attached */
	void (*take)(struct inspect *inspect, const struct event *event);
	void (*tick)(struct inspect *inspect);                                     /* some times a second; NULL: not needed */
	json_t *(*report)(struct inspect *inspect);                                /* a new reference; since the start */
	void (*print)(FILE *out, const json_t *report);
	void (*close)(struct inspect *inspect);
};

struct inspect {
	struct options options;
	const struct inspect_verb *verb;
	struct preflight preflight;
	struct subject subject;
	struct programs *programs;
	void *state;                      /* the verb's */
	int64_t started_ns;               /* when all was attached */
	int wants_refresh;                /* somebody unknown was seen */
	json_t *before;                   /* the manager's counters then */
	uint32_t note_count;
	char note[INSPECT_NOTES_MAX][256];
	void *libraries;                  /* of library.c */
};

extern const struct inspect_verb inspect_io, inspect_waits, inspect_loads, inspect_leases;

/* Something the reader of a report should know; each text once. */
void inspect_note(struct inspect *inspect, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What is not plain ASCII becomes a question mark: for JSON and for terminals. */
void inspect_make_printable(char *text);

/* What every report begins with, to be filled further; NULL: no memory. */
json_t *inspect_report_new(struct inspect *inspect);
/* And how it begins and ends for people. */
void inspect_print_head(FILE *out, const json_t *report);
void inspect_print_notes(FILE *out, const json_t *report);

/* What the manager says by itself, for whoever may not look into the kernel. 0 or -errno with a message. */
int inspect_counters(const struct inspect *inspect, json_t **ret_report, char message[INSPECT_MESSAGE_BYTES]);
void inspect_print_counters(FILE *out, const char *verb, const json_t *report);

#endif
