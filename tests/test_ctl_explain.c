/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ctl/explain*.c: made situations have the limit that they have, and samples that are none are refused. */
#include "tools/ctl/explain_sample.h"
#include "tools/ctl/explain_verdict.h"
#include "tools/ctl/verb.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char message[CTL_MESSAGE_BYTES];

#define GIB (1ull << 30)

/* One client that looks things up; memory is full of 100 experts of 1,000. */
static struct explain_sample *sample_at(double uptime_s)
{
	struct explain_sample *sample = calloc(1, sizeof *sample);

	*sample = (struct explain_sample){.uptime_s = uptime_s,
					  .accesses = (uint64_t)(uptime_s * 100),
					  .loads = 10,
					  .resident_bytes = GIB,
					  .resident_objects = 100,
					  .budget_bytes = GIB,
					  .client_count = 1,
					  .drive_count = 1,
					  .curve_known = 1,
					  .miss_share_now = 0.5,
					  .miss_share_double = 0.4,
					  .all_bytes = 10 * GIB,
					  .object_count = 1000};
	sample->client[0] = (struct explain_client){.session = 7, .accesses = sample->accesses};
	(void)snprintf(sample->drive[0].name, sizeof sample->drive[0].name, "nvme0n1");
	(void)snprintf(sample->drive[0].state, sizeof sample->drive[0].state, "ok");
	return sample;
}

static struct explain_verdict judge(struct explain_sample *before, struct explain_sample *after)
{
	struct explain_verdict verdict;

	cr_assert_eq(explain_judge(before, after, &verdict), 0);
	free(before);
	free(after);
	return verdict;
}

/* In ten seconds the client waited so many, for 50 loads. */
static struct explain_sample *after_waits(double waited_s)
{
	struct explain_sample *sample = sample_at(20);

	sample->felt_wait_s = sample->client[0].felt_wait_s = waited_s;
	sample->loads = 60;
	sample->misses = 50;
	sample->evictions = 50;
	sample->service_s = waited_s;
	sample->bytes_read = 500000000;
	sample->drive[0].bytes = 500000000;
	return sample;
}

Test(ctl_explain, nobody_asks_is_idle)
{
	struct explain_sample *after = sample_at(20);
	struct explain_verdict verdict;

	after->accesses = 1000;
	after->client[0].accesses = 1000;
	verdict = judge(sample_at(10), after);
	cr_expect_eq(verdict.limit, EXPLAIN_IDLE);
	cr_expect_eq(verdict.clients, 0);
}

Test(ctl_explain, clients_that_hardly_wait_compute)
{
	struct explain_verdict verdict = judge(sample_at(10), after_waits(0.9));

	cr_expect_eq(verdict.limit, EXPLAIN_COMPUTE);
	cr_expect_not_null(strstr(verdict.why, "9.0 %"), "%s", verdict.why);
}

Test(ctl_explain, misses_that_twice_the_memory_spares_are_capacity)
{
	struct explain_sample *after = after_waits(8);
	struct explain_verdict verdict;

	after->miss_share_double = 0.1;
	verdict = judge(sample_at(10), after);
	cr_expect_eq(verdict.limit, EXPLAIN_CAPACITY);
	cr_expect_float_eq(verdict.waiting, 0.8, 1e-9);
	cr_expect_float_eq(verdict.double_ram, 0.16, 1e-9);
	cr_expect_not_null(strstr(verdict.advice, "2.0 GiB"), "%s", verdict.advice);
	cr_expect_not_null(strstr(verdict.advice, "16 %"), "%s", verdict.advice);
}

Test(ctl_explain, misses_that_twice_the_memory_does_not_spare_are_the_disk)
{
	struct explain_verdict verdict = judge(sample_at(10), after_waits(8));

	cr_expect_eq(verdict.limit, EXPLAIN_DISK);
	cr_expect_not_null(strstr(verdict.why, "50.0 MB/s"), "%s", verdict.why);
	cr_expect_not_null(strstr(verdict.why, "nvme0n1"), "%s", verdict.why);
	cr_expect_not_null(strstr(verdict.advice, "about 64 %"), "more memory is told of, too: %s", verdict.advice);
}

Test(ctl_explain, first_reads_into_free_memory_are_the_disk_whatever_the_curve_says)
{
	struct explain_sample *after = after_waits(8);
	struct explain_verdict verdict;

	after->evictions = 0;
	after->resident_bytes = GIB / 2;
	after->miss_share_double = 0;
	verdict = judge(sample_at(10), after);
	cr_expect_eq(verdict.limit, EXPLAIN_DISK);
	cr_expect_not_null(strstr(verdict.advice, "cnrectl warm"), "%s", verdict.advice);
}

Test(ctl_explain, reads_that_do_not_come_back_are_the_disk)
{
	struct explain_sample *after = sample_at(20);
	struct explain_verdict verdict;

	after->accesses = 1000;
	after->client[0].accesses = 1000;
	after->loads_in_flight = 1;
	(void)snprintf(after->drive[0].state, sizeof after->drive[0].state, "hangs");
	verdict = judge(sample_at(10), after);
	cr_expect_eq(verdict.limit, EXPLAIN_DISK);
	cr_expect_not_null(strstr(verdict.why, "hangs"), "%s", verdict.why);
}

Test(ctl_explain, waiting_is_a_part_of_the_time_of_all_that_are_active)
{
	struct explain_sample *before = sample_at(10), *after = after_waits(8);
	struct explain_verdict verdict;

	before->client_count = after->client_count = 2;
	after->client[1] = (struct explain_client){.session = 9, .accesses = 5};
	before->client[1] = (struct explain_client){.session = 8, .accesses = 5}; /* another one, that ended */
	verdict = judge(before, after);
	cr_expect_eq(verdict.clients, 2);
	cr_expect_float_eq(verdict.waiting, 0.4, 1e-9);
}

Test(ctl_explain, samples_of_two_managers_are_estale_and_leave_the_output)
{
	struct explain_sample *before = sample_at(20), *after = sample_at(10);
	struct explain_verdict verdict = {.clients = 77};

	cr_expect_eq(explain_judge(before, after, &verdict), -ESTALE);
	cr_expect_eq(explain_judge(before, before, &verdict), -ESTALE);
	after->uptime_s = 30;
	after->loads = 0;
	cr_expect_eq(explain_judge(before, after, &verdict), -ESTALE);
	cr_expect_eq(verdict.clients, 77);
	free(before);
	free(after);
}

/* ---- GPUs ---- */

static struct explain_sample *with_gpus(struct explain_sample *sample, uint64_t hits, uint64_t uploads)
{
	sample->vram = (struct explain_vram){.is_asked_for = 1, .is_on = 1, .device_count = 2, .hits = hits, .uploads = uploads};
	return sample;
}

Test(ctl_explain, what_vram_serves_changes_no_limit)
{
	static const struct {
		double waited_s, share_double;
		enum explain_limit limit;
	} cases[] = {{0.9, 0.4, EXPLAIN_COMPUTE}, {8, 0.1, EXPLAIN_CAPACITY}, {8, 0.4, EXPLAIN_DISK}};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct explain_sample *after = with_gpus(after_waits(cases[i].waited_s), 900, 30);
		struct explain_verdict verdict;

		after->miss_share_double = cases[i].share_double;
		verdict = judge(with_gpus(sample_at(10), 100, 10), after);
		cr_expect_eq(verdict.limit, cases[i].limit, "%zu: %s", i, explain_limit_name(verdict.limit));
		cr_expect_eq(verdict.vram_hits, 800);
		cr_expect_eq(verdict.vram_uploads, 20);
		cr_expect_str_eq(verdict.vram, "");
	}
}

Test(ctl_explain, waits_without_a_miss_or_a_read_are_for_vram_and_not_for_the_disk)
{
	struct explain_sample *after = with_gpus(sample_at(20), 900, 30);
	struct explain_verdict verdict;

	after->felt_wait_s = after->client[0].felt_wait_s = 8;
	verdict = judge(with_gpus(sample_at(10), 100, 10), after);
	cr_expect_eq(verdict.limit, EXPLAIN_VRAM);
	cr_expect_str_eq(explain_limit_name(verdict.limit), "vram");
	cr_expect_not_null(strstr(verdict.why, "80 %"), "%s", verdict.why);
	cr_expect_not_null(strstr(verdict.why, "20 were copied"), "%s", verdict.why);
	cr_expect_float_eq(verdict.double_drive, 0.8, 1e-9, "twice the drives bring nothing");
}

Test(ctl_explain, a_gpu_that_is_lost_and_vram_that_is_none_are_said_whatever_the_limit_is)
{
	struct explain_sample *after = with_gpus(after_waits(8), 0, 0);
	struct explain_verdict verdict;

	after->vram.lost_count = 1;
	(void)snprintf(after->vram.lost, sizeof after->vram.lost, "GPU-1234");
	(void)snprintf(after->vram.reason, sizeof after->vram.reason, "a thread hangs");
	verdict = judge(with_gpus(sample_at(10), 0, 0), after);
	cr_expect_eq(verdict.limit, EXPLAIN_DISK);
	cr_expect_not_null(strstr(verdict.vram, "1 of 2 GPUs lost"), "%s", verdict.vram);
	cr_expect_not_null(strstr(verdict.vram, "GPU-1234: a thread hangs"), "%s", verdict.vram);
	after = with_gpus(after_waits(0.5), 0, 0);
	after->vram.is_on = 0;
	after->vram.device_count = 0;
	(void)snprintf(after->vram.reason, sizeof after->vram.reason, "no driver");
	verdict = judge(sample_at(10), after);
	cr_expect_eq(verdict.limit, EXPLAIN_COMPUTE);
	cr_expect_not_null(strstr(verdict.vram, "--vram is given and no GPU is used: no driver"), "%s", verdict.vram);
	verdict = judge(sample_at(10), after_waits(0.5));
	cr_expect_str_eq(verdict.vram, "", "without --vram nothing is missing");
}

/* ---- the verb ---- */

struct fake {
	const char *status, *layers; /* NULL: those of below */
	double uptime_s;
	const char *broken; /* the verb whose answer is {} */
	int asked, paused;
};

static const struct {
	const char *verb, *text;
} answers[] = {
	{"status", "{\"models\":[{\"payload_bytes_total\":1000,\"objects\":10}]}"},
	{"layers", "{\"models\":[{\"accesses\":100,\"even_miss_share_now\":0.5,\"even_miss_share_double\":0.1},"
		   "{\"accesses\":300,\"even_miss_share_now\":0.9,\"even_miss_share_double\":0.5},"
		   "{\"accesses\":0,\"even_miss_share_now\":null,\"even_miss_share_double\":null}]}"},
	{"drives", "{\"drives\":[{\"name\":\"sd\\u001b[31ma\",\"state\":\"ok\",\"bytes\":5,\"reads\":1,\"in_flight\":0,\"read_s\":0.5}]}"},
	{"clients", "{\"clients\":[{\"session\":1,\"accesses\":3,\"felt_wait_s\":0.5}]}"},
};

static int fake_ask(void *context, const char *request, json_t **ret_answer, char text[CTL_MESSAGE_BYTES])
{
	struct fake *fake = context;
	char stats[1000];

	(void)text;
	fake->asked++;
	(void)snprintf(stats, sizeof stats,
		       "{\"uptime_s\":%.1f,\"accesses\":4,\"misses\":1,\"loads\":1,\"bytes_read\":100,\"evictions\":0,"
		       "\"resident_bytes\":10,\"resident_objects\":1,\"budget_bytes\":10,\"loads_in_flight\":0,"
		       "\"loads_queued\":0,\"felt_wait_s\":0.5,\"service_s\":0.5,\"vram_hits\":3,\"vram_uploads\":1}",
		       fake->uptime_s);
	for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++)
		if (strstr(request, answers[i].verb) != NULL)
			(void)snprintf(stats, sizeof stats, "%s",
				       i == 0 && fake->status != NULL   ? fake->status
				       : i == 1 && fake->layers != NULL ? fake->layers
									: answers[i].text);
	*ret_answer = json_loads(fake->broken != NULL && strstr(request, fake->broken) ? "{}" : stats, 0, NULL);
	cr_assert_not_null(*ret_answer);
	return 0;
}

static int fake_pause(void *context, double seconds)
{
	struct fake *fake = context;

	fake->paused++;
	fake->uptime_s += seconds;
	return 0;
}

static int gather(struct fake *fake, char *seconds, json_t **ret_answer)
{
	const struct verb_asker asker = {.context = fake, .ask = fake_ask, .pause = fake_pause};
	char *words[] = {(char *)"explain", (char *)"--seconds", seconds, NULL};

	return verb_find("explain")->gather(3, words, &asker, ret_answer, message);
}

Test(ctl_explain, two_samples_are_so_many_seconds_apart_and_every_key_is_there)
{
	static const char *const keys[] = {"limit", "why", "do", "seconds", "clients", "waiting", "waiting_double_ram",
					   "waiting_double_drive", "lookups_s", "misses_s", "loads_s", "evictions_s", "bytes_s",
					   "felt_miss_s", "service_s", "loads_in_flight", "loads_queued", "resident_bytes",
					   "budget_bytes", "all_bytes", "miss_share_now", "miss_share_double", "drives", "vram", "vram_hits_s",
					   "vram_uploads_s"};
	struct fake fake = {.uptime_s = 5};
	json_t *answer = NULL;

	cr_assert_eq(gather(&fake, (char *)"2.5", &answer), 0, "%s", message);
	cr_expect_eq(fake.asked, 10);
	cr_expect_eq(fake.paused, 1);
	cr_expect_float_eq(json_number_value(json_object_get(answer, "seconds")), 2.5, 1e-9);
	cr_expect_float_eq(json_number_value(json_object_get(answer, "miss_share_now")), 0.8, 1e-9);
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		cr_expect_not_null(json_object_get(answer, keys[i]), "%s", keys[i]);
	json_decref(answer);
}

Test(ctl_explain, gpus_are_read_from_status_and_said_to_people)
{
	struct fake fake = {.uptime_s = 5,
			    .status = "{\"models\":[],\"vram\":{\"state\":\"on\",\"reason\":null,\"devices\":[{\"uuid\":\"GPU-a\","
				      "\"state\":\"serving\",\"reason\":null},{\"uuid\":\"GPU-b\",\"state\":\"lost\","
				      "\"reason\":\"it fell off the bus\"}]}}"};
	struct fields fields = {.missing = NULL};
	char text[4096] = "";
	FILE *out = fmemopen(text, sizeof text, "w");
	json_t *answer = NULL;

	cr_assert_eq(gather(&fake, (char *)"1", &answer), 0, "%s", message);
	verb_find("explain")->print(out, &fields, answer);
	(void)fclose(out);
	cr_expect_null(fields.missing, "%s", fields.missing);
	cr_expect_not_null(strstr(text, "\nvram       1 of 2 GPUs lost"), "%s", text);
	cr_expect_not_null(strstr(text, "GPU-b: it fell off the bus"), "%s", text);
	json_decref(answer);
	fake.status = "{\"models\":[],\"vram\":{\"state\":\"off\",\"reason\":\"no --vram\",\"devices\":[]}}";
	cr_assert_eq(gather(&fake, (char *)"1", &answer), 0, "%s", message);
	cr_expect(json_is_null(json_object_get(answer, "vram")));
	json_decref(answer);
}

/* Of two models one is served by GPUs: 1,000 lookups, of which memory was asked for 100. */
Test(ctl_explain, curves_of_models_count_by_what_memory_was_asked_for)
{
	struct fake fake = {.uptime_s = 5,
			    .layers = "{\"models\":[{\"accesses\":1000,\"even_miss_share_now\":0.9,\"even_miss_share_double\":0.9,"
				      "\"layers\":[{\"reuse\":{\"accesses\":60}},{\"reuse\":{\"accesses\":40}}]},"
				      "{\"accesses\":300,\"even_miss_share_now\":0.5,\"even_miss_share_double\":0.1,"
				      "\"layers\":[{\"reuse\":{\"accesses\":300}}]}]}"};
	json_t *answer = NULL;

	cr_assert_eq(gather(&fake, (char *)"1", &answer), 0, "%s", message);
	cr_expect_float_eq(json_number_value(json_object_get(answer, "miss_share_now")), 0.6, 1e-9);
	cr_expect_float_eq(json_number_value(json_object_get(answer, "miss_share_double")), 0.3, 1e-9);
	json_decref(answer);
}

Test(ctl_explain, an_answer_without_a_field_is_ebadmsg_with_its_name)
{
	static const char *const verbs[] = {"status", "layers", "drives", "clients", "stats"};

	for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
		struct fake fake = {.uptime_s = 5, .broken = verbs[i]};
		json_t *answer = NULL;

		cr_expect_eq(gather(&fake, (char *)"1", &answer), -EBADMSG, "%s", verbs[i]);
		cr_expect_null(answer);
		cr_expect_not_null(strstr(message, "no usable field"), "%s", message);
	}
}

Test(ctl_explain, words_other_than_seconds_are_usage_errors)
{
	static char *const wrong[][3] = {{(char *)"explain", (char *)"now", NULL},
					 {(char *)"explain", (char *)"--seconds", (char *)"0.01"},
					 {(char *)"explain", (char *)"--seconds", (char *)"nan"},
					 {(char *)"explain", (char *)"--seconds", (char *)"3x"}};

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		json_t *request = NULL;

		cr_expect_eq(verb_find("explain")->request(wrong[i][2] == NULL ? 2 : 3, wrong[i], &request, message), -EINVAL, "%zu", i);
		cr_expect_null(request);
	}
}
