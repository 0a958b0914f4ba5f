/* SPDX-License-Identifier: Apache-2.0 */
/* Counting in slices, and who waits for it; see survey.h. */
#include "manager/survey.h"

#include "base/clock.h"
#include "manager/layer_count.h"
#include "manager/metrics.h"
#include "manager/report.h"
#include "manager/session.h"
#include "manager/state.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_FIRST 4096u

struct text {
	char *base; /* NULL: nothing yet, or out of memory */
	size_t bytes, room;
	int failed;
};

struct survey {
	struct survey_question *waiting; /* for this survey */
	struct survey_question *asked;   /* since it began */
	int64_t asked_ns;                /* when the first question came that is not answered */
	uint64_t ended_count;            /* of sessions, when it began */
	struct session_totals retired_vram; /* of them, when it began: what is more is of attached ones */
	int is_counting;
	uint32_t slot;              /* of sessions; all below are counted */
	uint32_t number;            /* of the session that `count` belongs to */
	struct session_count count; /* may be a part */
	struct session_totals sum;
	uint64_t leased;
	struct session_totals *by_layer;   /* [layers of all models], of all; NULL: no memory */
	struct session_totals *of_session; /* [layers of one model], of the one that `count` belongs to */
	int wants_clients, wants_layers, wants_metrics;
	struct text text[SURVEY_KINDS];
};

/* ---- questions ---- */

static void enter(struct survey_question **link, struct survey_question *question)
{
	question->next = *link;
	question->link = link;
	if (question->next != NULL)
		question->next->link = &question->next;
	*link = question;
}

void survey_forget(struct survey_question *question)
{
	if (question->link == NULL)
		return;
	*question->link = question->next;
	if (question->next != NULL)
		question->next->link = question->link;
	question->link = NULL;
}

/* ---- text ---- */

static void add_text(struct text *text, const char *bytes, size_t count)
{
	if (text->failed)
		return;
	if (text->room - text->bytes < count) {
		size_t room = 2 * (text->bytes + count) + TEXT_BYTES_FIRST;
		char *base = realloc(text->base, room);

		if (base == NULL) {
			text->failed = 1;
			return;
		}
		text->base = base;
		text->room = room;
	}
	memcpy(text->base + text->bytes, bytes, count);
	text->bytes += count;
}

/* Takes the object over. */
static void add_json(struct text *text, json_t *json)
{
	char *bytes = json == NULL ? NULL : json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);

	json_decref(json);
	if (bytes == NULL)
		text->failed = 1;
	else
		add_text(text, bytes, strlen(bytes));
	free(bytes);
}

static void drop_texts(struct survey *survey)
{
	for (int kind = 0; kind < SURVEY_KINDS; kind++) {
		free(survey->text[kind].base);
		survey->text[kind] = (struct text){.base = NULL};
	}
}

/* ---- counting ---- */

/* Made by the first survey: when there is a survey, the models are not known yet. */
static void begin_layers(struct manager *manager)
{
	struct survey *survey = manager->survey;
	const struct layer_counts *counts = manager->layer_counts;

	if (counts == NULL)
		return;
	if (survey->by_layer == NULL) {
		survey->by_layer = calloc(counts->count, sizeof *survey->by_layer);
		survey->of_session = calloc(counts->count, sizeof *survey->of_session);
	}
	if (survey->by_layer == NULL || survey->of_session == NULL) {
		free(survey->by_layer);
		free(survey->of_session);
		survey->by_layer = survey->of_session = NULL;
		return;
	}
	memcpy(survey->by_layer, counts->ended, counts->count * sizeof *survey->by_layer);
}

static void begin_session(struct survey *survey, const struct session *session)
{
	survey->number = session->number;
	survey->count = (struct session_count){.by_layer = survey->of_session};
	if (survey->of_session != NULL)
		memset(survey->of_session, 0, session->model->catalog->layer_count * sizeof *survey->of_session);
}

static void add_layers(struct survey *survey, const struct served_model *model)
{
	for (uint32_t layer = 0; survey->by_layer != NULL && layer < model->catalog->layer_count; layer++)
		session_totals_add(&survey->by_layer[model->first_layer + layer], &survey->of_session[layer]);
}

const struct session_totals *survey_layers(const struct manager *manager)
{
	return manager->survey->by_layer;
}

static void begin(struct manager *manager)
{
	struct survey *survey = manager->survey;

	drop_texts(survey); /* of one whose askers have all gone */
	survey->waiting = survey->asked;
	survey->waiting->link = &survey->waiting;
	survey->asked = NULL;
	survey->is_counting = 1;
	survey->slot = survey->number = 0;
	survey->ended_count = manager->sessions->ended_count;
	/* Who ends from here on was active: counted already, or not at all this time; but never twice. */
	survey->sum = manager->sessions->retired;
	survey->retired_vram = survey->sum;
	survey->leased = 0;
	begin_layers(manager);
	survey->wants_clients = survey->wants_layers = survey->wants_metrics = 0;
	for (const struct survey_question *q = survey->waiting; q != NULL; q = q->next) {
		survey->wants_clients |= q->kind == SURVEY_CLIENTS;
		survey->wants_layers |= q->kind == SURVEY_LAYERS;
		survey->wants_metrics |= q->kind == SURVEY_METRICS;
	}
	if (survey->wants_metrics)
		metrics_survey_begins(manager);
	if (survey->wants_clients)
		add_text(&survey->text[SURVEY_CLIENTS], "{\"clients\":[", 12);
}

static void take_session(struct manager *manager, const struct session *session)
{
	struct survey *survey = manager->survey;
	struct text *clients = &survey->text[SURVEY_CLIENTS];

	session_totals_add(&survey->sum, &survey->count.totals);
	add_layers(survey, session->model);
	survey->leased += survey->count.leased;
	if (survey->wants_metrics)
		metrics_take_session(manager, session, &survey->count);
	if (!survey->wants_clients)
		return;
	if (clients->bytes > 0 && clients->base[clients->bytes - 1] != '[')
		add_text(clients, ",", 1);
	add_json(clients, report_client(session, &survey->count));
}

/* 1: every session was counted. The one at `slot` may be another than at the last turn. */
static int count_slice(struct manager *manager)
{
	struct survey *survey = manager->survey;
	uint32_t words = SURVEY_WORDS_PER_TURN;

	for (; survey->slot < CNRE_SESSIONS_MAX; survey->slot++) {
		const struct session *session = manager->sessions->by_slot[survey->slot];
		uint32_t before, cost;

		if (session == NULL)
			continue;
		if (session->number != survey->number)
			begin_session(survey, session);
		before = survey->count.objects;
		if (!session_count(session, &survey->count, words))
			return 0;
		take_session(manager, session);
		survey->number = 0;
		cost = survey->count.objects - before + (survey->wants_clients ? SURVEY_WORDS_PER_CLIENT : 1);
		words = words > cost ? words - cost : 0;
	}
	return 1;
}

/* Somebody ended meanwhile: he may not have been counted. */
static int is_stale(const struct manager *manager)
{
	const struct survey *survey = manager->survey;

	return manager->sessions->ended_count != survey->ended_count &&
	       cnre_clock_now_ns() - survey->asked_ns < SURVEY_ENDING_NS;
}

static void begin_again(struct survey *survey)
{
	struct survey_question *question;

	survey->is_counting = 0;
	while ((question = survey->waiting) != NULL) {
		survey_forget(question);
		enter(&survey->asked, question);
	}
}

static void finish(struct manager *manager)
{
	struct survey *survey = manager->survey;

	survey->is_counting = 0;
	state_save_vram(manager, survey->sum.vram_hits - survey->retired_vram.vram_hits,
			survey->sum.vram_bytes - survey->retired_vram.vram_bytes);
	survey->asked_ns = cnre_clock_now_ns(); /* of those that came meanwhile, about */
	add_json(&survey->text[SURVEY_STATS], report_stats(manager, &survey->sum, survey->leased));
	if (survey->wants_clients)
		add_text(&survey->text[SURVEY_CLIENTS], "]}", 2);
	if (survey->wants_layers)
		add_json(&survey->text[SURVEY_LAYERS], report_layers(manager));
}

static void answer_some(struct survey *survey)
{
	for (uint32_t i = 0; i < SURVEY_ANSWERS_PER_TURN && survey->waiting != NULL; i++) {
		struct survey_question *question = survey->waiting;
		const struct text *text = &survey->text[question->kind];

		survey_forget(question);
		question->answer(question, text->failed ? NULL : text->base, text->bytes);
	}
}

/* The worker's being done is a reason for another turn, so nobody needs to come back by time. */
static int waits_for_endings(const struct manager *manager)
{
	return manager->sessions->cleanups > 0 && cnre_clock_now_ns() - manager->survey->asked_ns < SURVEY_ENDING_NS;
}

int survey_pump(struct manager *manager)
{
	struct survey *survey = manager->survey;

	if (survey->waiting == NULL && (survey->asked == NULL || waits_for_endings(manager)))
		return 0;
	if (survey->waiting == NULL)
		begin(manager);
	if (survey->is_counting && count_slice(manager)) {
		if (is_stale(manager))
			begin_again(survey);
		else
			finish(manager);
	}
	if (!survey->is_counting)
		answer_some(survey);
	if (survey->waiting != NULL)
		return 1;
	drop_texts(survey);
	return survey->asked != NULL && !waits_for_endings(manager);
}

void survey_ask(struct manager *manager, struct survey_question *question)
{
	struct survey *survey = manager->survey;

	if (survey->asked == NULL && survey->waiting == NULL)
		survey->asked_ns = cnre_clock_now_ns();
	enter(&survey->asked, question);
	if (survey->waiting == NULL)
		(void)survey_pump(manager);
}

int survey_open(struct manager *manager)
{
	manager->survey = calloc(1, sizeof *manager->survey);
	return manager->survey == NULL ? -ENOMEM : 0;
}

void survey_close(struct manager *manager)
{
	if (manager->survey == NULL)
		return;
	drop_texts(manager->survey);
	free(manager->survey->by_layer);
	free(manager->survey->of_session);
	free(manager->survey);
	manager->survey = NULL;
}
