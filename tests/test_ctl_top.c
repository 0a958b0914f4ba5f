/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of cnrectl top: from two looks, whoever came or went between them, and what an odd answer does. */
#include "tools/ctl/top_rates.h"

#include <criterion/criterion.h>
#include <stdio.h>

TestSuite(ctl_top, .timeout = 20);

#define STATS(uptime, accesses, hits, misses, wait) \
	"\"stats\":{\"uptime_s\":" uptime ",\"accesses\":" accesses ",\"hits\":" hits ",\"misses\":" misses \
	",\"felt_wait_s\":" wait ",\"loads\":10,\"service_s\":0.5,\"bytes_read\":1000,\"evictions\":0,\"resident_bytes\":7," \
	"\"budget_bytes\":9,\"loads_in_flight\":1,\"loads_queued\":2}"
#define CLIENT(session, accesses, hits, wait) \
	"{\"session\":" session ",\"name\":\"c" session "\",\"pid\":5,\"state\":\"attached\",\"leased\":3,\"accesses\":" accesses \
	",\"hits\":" hits ",\"felt_wait_s\":" wait ",\"felt_p99_s\":null}"
#define LAYER(number, accesses, hits, wait) \
	"{\"layer\":" number ",\"experts\":8,\"resident\":4,\"accesses\":" accesses ",\"hits\":" hits ",\"felt_wait_s\":" wait \
	",\"felt_p99_s\":0.25}"
#define DRIVE(device, bytes, reads, time) \
	"{\"name\":null,\"device\":\"" device "\",\"state\":\"ok\",\"bytes\":" bytes ",\"reads\":" reads ",\"read_s\":" time \
	",\"read_p99_s\":null,\"in_flight\":1}"
#define LOOK(stats, clients, layers, drives) \
	"{" stats ",\"clients\":{\"clients\":[" clients "]},\"layers\":{\"models\":[{\"name\":\"m\",\"layers\":[" layers \
	"]}]},\"drives\":{\"drives\":[" drives "]}}"

static json_t *rates(const char *before, const char *now)
{
	struct fields fields = {.missing = NULL};
	json_t *then = json_loads(before, 0, NULL), *later = json_loads(now, 0, NULL), *answer;

	cr_assert(then != NULL && later != NULL);
	answer = top_rates(&fields, then, later);
	cr_assert_null(fields.missing, "%s", fields.missing);
	json_decref(then);
	json_decref(later);
	return answer;
}

static double real(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	cr_assert(json_is_number(value), "no number %s", key);
	return json_number_value(value);
}

static const json_t *first(const json_t *answer, const char *list)
{
	return json_array_get(json_object_get(answer, list), 0);
}

Test(ctl_top, rates_are_of_the_time_between_and_the_busiest_comes_first)
{
	json_t *answer = rates(LOOK(STATS("10", "100", "50", "50", "1"), CLIENT("1", "60", "60", "0") "," CLIENT("2", "40", "30", "1"),
				    LAYER("0", "50", "50", "0") "," LAYER("1", "50", "50", "1"), DRIVE("8:1", "100", "1", "0.1")),
			       LOOK(STATS("12", "200", "140", "60", "3"), CLIENT("1", "70", "70", "0") "," CLIENT("2", "130", "110", "3"),
				    LAYER("0", "100", "100", "0") "," LAYER("1", "100", "60", "3"), DRIVE("8:1", "500", "3", "0.5")));

	cr_assert_not_null(answer);
	cr_expect_float_eq(real(answer, "seconds"), 2, 1e-9);
	cr_expect_float_eq(real(answer, "lookups_s"), 50, 1e-9);
	cr_expect_float_eq(real(answer, "hit_share"), 0.9, 1e-9);
	cr_expect_float_eq(real(answer, "felt_miss_s"), 0.2, 1e-9, "felt wait by misses");
	cr_expect(json_is_null(json_object_get(answer, "service_s")), "no load, no average");
	cr_expect_float_eq(real(first(answer, "clients"), "session"), 2, 0);
	cr_expect_float_eq(real(first(answer, "clients"), "lookups_s"), 45, 1e-9);
	cr_expect_float_eq(real(first(answer, "clients"), "waiting"), 1, 1e-9);
	cr_expect_float_eq(real(first(answer, "layers"), "layer"), 1, 0, "who waits is first");
	cr_expect_float_eq(real(first(answer, "layers"), "hit_share"), 0.2, 1e-9);
	cr_expect_float_eq(real(first(answer, "drives"), "bytes_s"), 200, 1e-9);
	cr_expect_float_eq(real(first(answer, "drives"), "read_s"), 0.2, 1e-9);
	cr_expect_str_eq(json_string_value(json_object_get(first(answer, "drives"), "name")), "8:1");
	json_decref(answer);
}

Test(ctl_top, who_came_counts_from_nothing_and_who_went_is_not_shown)
{
	json_t *answer = rates(LOOK(STATS("10", "0", "0", "0", "0"), CLIENT("1", "60", "60", "0"), LAYER("0", "9", "9", "0"), DRIVE("8:1", "1", "1", "1")),
			       LOOK(STATS("11", "0", "0", "0", "0"), CLIENT("3", "10", "5", "0"), LAYER("0", "9", "9", "0"), DRIVE("8:9", "4", "2", "1")));

	cr_expect_eq(json_array_size(json_object_get(answer, "clients")), 1);
	cr_expect_float_eq(real(first(answer, "clients"), "lookups_s"), 10, 1e-9);
	cr_expect(json_is_null(json_object_get(answer, "hit_share")));
	cr_expect(json_is_null(json_object_get(first(answer, "layers"), "hit_share")));
	json_decref(answer);
}

Test(ctl_top, another_manager_has_no_rates)
{
	cr_expect_null(rates(LOOK(STATS("10", "5", "5", "0", "0"), "", "", ""), LOOK(STATS("1", "5", "5", "0", "0"), "", "", "")));
}

Test(ctl_top, a_field_that_is_missing_is_said)
{
	struct fields fields = {.missing = NULL};
	json_t *empty = json_object();
	json_t *answer = top_rates(&fields, empty, empty);

	cr_expect_null(answer);
	cr_expect_str_eq(fields.missing, "uptime_s");
	json_decref(empty);
}
