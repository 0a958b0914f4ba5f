/* SPDX-License-Identifier: Apache-2.0 */
/* Counting what clients do: in slices, each answer of a whole survey that began after its question. */
#include "manager/survey.h"

#include "base/clock.h"
#include "manager/session.h"
#include "model/catalog.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void finish(void);
TestSuite(manager_survey, .timeout = 20, .fini = finish);

enum { OBJECTS = 50000, SESSIONS = 3 }; /* more than one slice, and no multiple of one */

static struct manager manager;
static struct model_catalog catalog;
static struct model_layer layer;
static struct model_object objects_of[OBJECTS];
static struct model_shape shape = {.payload_bytes = 1000};
static struct served_model model;
static struct session session[SESSIONS];
static json_t *answered; /* a list that owns what was answered */

struct asker {
	struct survey_question question; /* first */
	int answers;
	json_t *json;
};

static void take_answer(struct survey_question *question, const char *text, size_t bytes)
{
	struct asker *asker = (struct asker *)question;

	asker->answers++;
	asker->json = json_loadb(text, bytes, 0, NULL);
	cr_assert_eq(json_array_append_new(answered, asker->json), 0);
}

static void ask(struct asker *asker, enum survey_kind kind)
{
	*asker = (struct asker){.question = {.kind = kind, .answer = take_answer}};
	survey_ask(&manager, &asker->question);
}

static void access_some(struct session *of, uint32_t object, uint32_t count, uint32_t leases)
{
	/* [T1] relaxed: one thread. */
	atomic_store_explicit(&of->ledger->word[object], count * CNRE_LEDGER_ACCESS + leases, memory_order_relaxed);
}

static void attach(uint32_t slot, uint32_t number, uint32_t objects)
{
	struct session *new = &session[slot];

	free(new->channel);
	free(new->ledger);
	catalog.object_count = layer.expert_count = objects;
	*new = (struct session){.model = &model, .number = number, .slot = slot, .attached_ns = cnre_clock_now_ns()};
	new->channel = calloc(1, CNRE_CHANNEL_BYTES(1));
	new->ledger = calloc(1, sizeof *new->ledger + objects * sizeof(uint64_t));
	manager.sessions->by_slot[slot] = new;
}

static void start(uint32_t objects)
{
	catalog = (struct model_catalog){
		.name = "invented", .layer_count = 1, .layer = &layer, .object = objects_of, .shape = &shape};
	model.catalog = &catalog;
	answered = json_array();
	manager.counters = calloc(1, sizeof *manager.counters);
	manager.state = calloc(1, sizeof *manager.state);
	cr_assert_eq(session_table_open(&manager.sessions), 0);
	cr_assert_eq(survey_open(&manager), 0);
	for (uint32_t s = 0; s < SESSIONS; s++)
		attach(s, s + 1, objects);
}

static void finish(void)
{
	for (uint32_t s = 0; s < SESSIONS; s++) {
		free(session[s].channel);
		free(session[s].ledger);
	}
	survey_close(&manager);
	manager.sessions = session_table_close(manager.sessions);
	free(manager.counters);
	free(manager.state);
	json_decref(answered);
}

static json_int_t number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	cr_assert(json_is_integer(value), "no number %s", key);
	return json_integer_value(value);
}

Test(manager_survey, what_fits_into_a_slice_is_answered_at_once)
{
	struct asker asker;

	start(100);
	access_some(&session[0], 7, 3, 1);
	access_some(&session[2], 99, 2, 0);
	manager.sessions->retired.accesses = 10;
	ask(&asker, SURVEY_STATS);
	cr_assert_eq(asker.answers, 1);
	cr_assert_eq(number(asker.json, "accesses"), 15);
	cr_assert_eq(number(asker.json, "bytes_looked_up"), 5000, "the payload of each, as often as it was looked up");
	cr_assert_eq(number(asker.json, "leased_objects"), 1);
	cr_assert_eq(survey_pump(&manager), 0);
}

Test(manager_survey, millions_of_words_take_several_turns_and_every_session_is_there_once)
{
	struct asker asker;
	int turns = 0;

	start(OBJECTS);
	for (uint32_t s = 0; s < SESSIONS; s++)
		for (uint32_t i = 0; i < OBJECTS; i++)
			access_some(&session[s], i, s + 1, i % 2);
	ask(&asker, SURVEY_CLIENTS);
	cr_assert_eq(asker.answers, 0);
	while (survey_pump(&manager))
		turns++;
	cr_assert_eq(asker.answers, 1);
	cr_assert_geq(turns + 2, SESSIONS * OBJECTS / (int)SURVEY_WORDS_PER_TURN, "no slice is longer than it may be");

	const json_t *clients = json_object_get(asker.json, "clients");

	cr_assert_eq(json_array_size(clients), SESSIONS);
	for (uint32_t s = 0; s < SESSIONS; s++) {
		const json_t *client = json_array_get(clients, s);

		cr_assert_eq(number(client, "session"), s + 1);
		cr_assert_eq(number(client, "accesses"), (json_int_t)OBJECTS * (s + 1));
		cr_assert_eq(number(client, "leased"), OBJECTS / 2);
	}
}

Test(manager_survey, who_asks_during_a_survey_gets_what_happened_before)
{
	struct asker first, second;

	start(OBJECTS);
	ask(&first, SURVEY_STATS);
	access_some(&session[0], 1, 5, 0); /* counted already */
	ask(&second, SURVEY_STATS);
	while (survey_pump(&manager))
		;
	cr_assert_eq(first.answers + second.answers, 2);
	cr_assert_eq(number(first.json, "accesses"), 0);
	cr_assert_eq(number(second.json, "accesses"), 5);
}

Test(manager_survey, a_session_that_ends_after_it_was_counted_is_not_counted_again)
{
	struct asker asker;

	start(OBJECTS);
	access_some(&session[0], 1, 5, 0);
	ask(&asker, SURVEY_STATS);
	cr_assert_eq(asker.answers, 0);
	manager.sessions->by_slot[0] = NULL;
	manager.sessions->retired.accesses += 5;
	while (survey_pump(&manager))
		;
	cr_assert_eq(number(asker.json, "accesses"), 5);
}

Test(manager_survey, what_a_client_did_that_has_just_ended_is_waited_for)
{
	struct asker asker;

	start(100);
	manager.sessions->by_slot[0] = NULL; /* its worker still adds up */
	manager.sessions->cleanups = 1;
	manager.sessions->ended_count = 1;
	ask(&asker, SURVEY_STATS);
	cr_assert_eq(survey_pump(&manager), 0, "the worker wakes the loop, nobody turns in circles");
	cr_assert_eq(asker.answers, 0);
	manager.sessions->retired.accesses += 5;
	manager.sessions->cleanups = 0;
	(void)survey_pump(&manager);
	cr_assert_eq(asker.answers, 1);
	cr_assert_eq(number(asker.json, "accesses"), 5);
}

Test(manager_survey, where_somebody_ends_during_a_survey_it_begins_again)
{
	struct asker asker;

	start(OBJECTS);
	access_some(&session[2], 1, 5, 0);
	ask(&asker, SURVEY_STATS);
	cr_assert_eq(asker.answers, 0);
	manager.sessions->by_slot[2] = NULL; /* not counted yet, and never will be where it was */
	manager.sessions->ended_count++;
	manager.sessions->cleanups = 1;
	while (survey_pump(&manager))
		;
	cr_assert_eq(asker.answers, 0);
	manager.sessions->retired.accesses += 5;
	manager.sessions->cleanups = 0;
	while (survey_pump(&manager))
		;
	cr_assert_eq(number(asker.json, "accesses"), 5);
}

Test(manager_survey, a_session_that_was_half_counted_leaves_nothing_to_the_next_in_its_slot)
{
	struct asker asker;

	start(OBJECTS);
	access_some(&session[1], 1, 5, 1); /* the first slice ends in this one */
	ask(&asker, SURVEY_STATS);
	cr_assert_eq(asker.answers, 0);
	attach(1, 77, OBJECTS);
	access_some(&session[1], OBJECTS - 1, 2, 0);
	while (survey_pump(&manager))
		;
	cr_assert_eq(number(asker.json, "accesses"), 2);
	cr_assert_eq(number(asker.json, "leased_objects"), 0);
}

Test(manager_survey, who_has_gone_gets_no_answer_and_the_others_do)
{
	struct asker gone, left, later;

	start(OBJECTS);
	ask(&gone, SURVEY_CLIENTS);
	ask(&left, SURVEY_CLIENTS);
	survey_forget(&gone.question);
	survey_forget(&gone.question);
	cr_assert_eq(survey_pump(&manager), 1);
	survey_forget(&left.question);
	cr_assert_eq(survey_pump(&manager), 0, "nobody waits");
	ask(&later, SURVEY_CLIENTS);
	while (survey_pump(&manager))
		;
	cr_assert_eq(gone.answers + left.answers, 0);
	cr_assert_eq(later.answers, 1);
	cr_assert_eq(json_array_size(json_object_get(later.json, "clients")), SESSIONS, "of its own survey only");
}

Test(manager_survey, many_askers_are_answered_a_few_a_turn)
{
	static struct asker asker[3 * SURVEY_ANSWERS_PER_TURN];
	int answers = 0;

	start(OBJECTS);
	for (size_t i = 0; i < sizeof asker / sizeof asker[0]; i++)
		ask(&asker[i], SURVEY_STATS);
	for (int more = 1; more;) {
		int before = answers;

		more = survey_pump(&manager);
		answers = 0;
		for (size_t i = 0; i < sizeof asker / sizeof asker[0]; i++)
			answers += asker[i].answers;
		cr_assert_leq(answers - before, (int)SURVEY_ANSWERS_PER_TURN);
	}
	cr_assert_eq(answers, 3 * (int)SURVEY_ANSWERS_PER_TURN);
}
