/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counting what clients access and hold. That stands in their ledgers, a word for each object and client: millions, which
 * take milliseconds, while a miss that waits meanwhile is felt. So a question about it is answered when a survey is over,
 * and the core thread counts one slice a turn. Who asks while one is running waits for the next, so an answer holds
 * everything that happened before its question. What fits into a slice is answered at once.
 *
 * Core thread only.
 */
#ifndef CNRE_MANAGER_SURVEY_H
#define CNRE_MANAGER_SURVEY_H

#include <stddef.h>
#include <stdint.h>

#define SURVEY_WORDS_PER_TURN 65536u  /* 40 us, where a word is 0.6 ns */
#define SURVEY_WORDS_PER_CLIENT 8192u /* what describing one client counts for */
#define SURVEY_ANSWERS_PER_TURN 4u    /* each is a memfd of all clients */
/*
 * What a client did that has just ended is added up by a worker. A survey begins when that is over, and again where one
 * ended meanwhile, so that its answer holds all of it; but where clients end without end, no longer than this.
 */
#define SURVEY_ENDING_NS 200000000

struct manager;
struct session_totals;

/* METRICS: what was counted is told to metrics.h meanwhile, and the text is empty. */
enum survey_kind { SURVEY_STATS, SURVEY_CLIENTS, SURVEY_LAYERS, SURVEY_METRICS, SURVEY_KINDS };

struct survey_question {
	enum survey_kind kind;
	uint32_t id;                          /* the asker's */
	struct survey_question *next, **link; /* link NULL: it does not wait */
	/* JSON text; NULL: out of memory, or of METRICS. The question does not wait any more. */
	void (*answer)(struct survey_question *question, const char *text, size_t bytes);
};

int survey_open(struct manager *manager);   /* 0 or -ENOMEM */
void survey_close(struct manager *manager); /* when nobody waits */

/* May answer before it returns. */
void survey_ask(struct manager *manager, struct survey_question *question);
/* The asker goes away, waiting or not. */
void survey_forget(struct survey_question *question);

/* While an answer is given: what was counted, by layer of all models; NULL: out of memory. */
const struct session_totals *survey_layers(const struct manager *manager);

/* A slice, or some answers. 1: there is more. */
int survey_pump(struct manager *manager);

#endif
