/* SPDX-License-Identifier: Apache-2.0 */
/* Clients by name: who has a place, that nothing is lost or counted twice, and that names cannot grow without bound. */
#include "manager/metrics_inner.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct manager manager;
static struct metrics *metrics;
static struct session_table table;

static void begin(void)
{
	metrics = calloc(1, sizeof *metrics);
	cr_assert_not_null(metrics);
	table = (struct session_table){.active_count = 0};
	manager = (struct manager){.metrics = metrics, .sessions = &table};
}

static void finish(void)
{
	free(metrics);
}

TestSuite(manager_metrics_clients, .timeout = 10, .init = begin, .fini = finish);

static struct session named(const char *name)
{
	struct session session = {.manager = &manager};

	(void)snprintf(session.name, sizeof session.name, "%s", name);
	return session;
}

static void end(const char *name, uint64_t accesses, uint64_t misses)
{
	struct session session = named(name);
	struct session_totals totals = {.accesses = accesses, .misses = misses};

	table.retired.accesses += accesses;
	table.retired.misses += misses;
	metrics_session_ended(&manager, &session, &totals);
}

static void take(const char *name, uint64_t accesses, uint64_t misses)
{
	struct session session = named(name);
	struct session_count count = {.totals = {.accesses = accesses, .misses = misses}, .leased = 2};

	metrics_take_session(&manager, &session, &count);
}

static const struct metrics_client *client(const char *name)
{
	const struct metrics_client *found = NULL;

	for (uint32_t i = 0; i < metrics->snapshot.client_count; i++)
		if (strcmp(metrics->snapshot.client[i].name, name) == 0) {
			cr_assert_null(found, "%s stands there twice", name);
			found = &metrics->snapshot.client[i];
		}
	cr_assert_not_null(found, "%s", name);
	return found;
}

Test(manager_metrics_clients, sessions_of_one_name_are_one_client_and_what_ended_stays)
{
	end("a", 10, 4);
	metrics_survey_begins(&manager);
	take("a", 5, 1);
	take("a", 1, 0);
	take("b", 7, 7);
	metrics_close_clients(metrics);
	cr_expect_eq(metrics->snapshot.client_count, 3u);
	cr_expect_eq(client("a")->accesses, 16u);
	cr_expect_eq(client("a")->hits, 11u);
	cr_expect_eq(client("a")->misses, 5u);
	cr_expect_eq(client("a")->sessions, 2u);
	cr_expect_eq(client("a")->leased, 4u);
	cr_expect_eq(client("b")->accesses, 7u);
	cr_expect_eq(client(METRICS_OTHER)->accesses, 0u);
}

Test(manager_metrics_clients, a_survey_that_begins_again_counts_nobody_twice)
{
	metrics_survey_begins(&manager);
	take("a", 5, 1);
	metrics_survey_begins(&manager);
	take("a", 6, 1);
	metrics_close_clients(metrics);
	cr_expect_eq(client("a")->accesses, 6u);
	cr_expect_eq(client("a")->sessions, 1u);
}

Test(manager_metrics_clients, what_former_managers_clients_did_is_the_others)
{
	table.retired.accesses = 100;
	table.retired.misses = 30;
	end("a", 10, 4);
	metrics_survey_begins(&manager);
	metrics_close_clients(metrics);
	cr_expect_eq(client("a")->accesses, 10u);
	cr_expect_eq(client(METRICS_OTHER)->accesses, 100u);
	cr_expect_eq(client(METRICS_OTHER)->hits, 70u);
}

/* Goal: a client that invents names makes no more series. Method: a thousand names; the sum is still that of all. */
Test(manager_metrics_clients, a_thousand_names_have_as_many_places_as_there_are)
{
	uint64_t sum = 0;
	char name[16];

	for (uint32_t i = 0; i < 1000; i++) {
		(void)snprintf(name, sizeof name, "client-%u", i);
		end(name, 1, 0);
	}
	metrics_survey_begins(&manager);
	take("client-0", 1, 0);
	take("client-999", 1, 0);
	metrics_close_clients(metrics);
	cr_assert_eq(metrics->snapshot.client_count, METRICS_CLIENTS_MAX + 1);
	for (uint32_t i = 0; i < metrics->snapshot.client_count; i++)
		sum += metrics->snapshot.client[i].accesses;
	cr_expect_eq(sum, 1002u);
	cr_expect_eq(client("client-0")->accesses, 2u);
	cr_expect_eq(client(METRICS_OTHER)->accesses, 1000 - METRICS_CLIENTS_MAX + 1);
}

/* Goal: no two series are alike. Method: names that a label shows alike, and that of the others. */
Test(manager_metrics_clients, names_that_look_alike_are_one_client)
{
	metrics_survey_begins(&manager);
	take("a\x01", 1, 0);
	take("a\xff", 1, 0);
	take(METRICS_OTHER, 4, 0);
	end("late", 0, 0); /* between the survey and its answer */
	metrics_close_clients(metrics);
	cr_expect_eq(client("a?")->accesses, 2u);
	cr_expect_eq(client(METRICS_OTHER)->accesses, 4u);
	cr_expect_eq(client("late")->accesses, 0u);
}
