/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot as text: both formats, units, names that somebody chose, histograms. */
#include "manager/metrics_snapshot.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct metrics_snapshot snapshot;
static char *text;

static void begin(void)
{
	snapshot = (struct metrics_snapshot){.model_count = 1, .policy = "cost", .started_unix_ns = 1700000000250000000};
	(void)snprintf(snapshot.model[0].name, sizeof snapshot.model[0].name, "olmoe");
}

static void finish(void)
{
	free(text);
	text = NULL;
}

TestSuite(manager_metrics_text, .timeout = 10, .init = begin, .fini = finish);

static const char *write_text(int is_openmetrics)
{
	size_t bytes = 0;

	free(text);
	text = metrics_text(&snapshot, is_openmetrics, &bytes);
	cr_assert_not_null(text);
	cr_assert_eq(strlen(text), bytes);
	return text;
}

static void set_counter(const char *name, uint64_t value)
{
	for (size_t i = 0; i < cnre_counter_count; i++)
		if (strcmp(cnre_counter_table[i].name, name) == 0)
			snapshot.counter[i] = value;
}

static void expect_line(const char *line)
{
	size_t length = strlen(line);
	const char *at = text;

	while ((at = strstr(at, line)) != NULL) {
		if ((at == text || at[-1] == '\n') && at[length] == '\n')
			return;
		at++;
	}
	cr_expect(0, "no line %s", line);
}

Test(manager_metrics_text, openmetrics_has_units_totals_and_an_end)
{
	set_counter("felt_wait_ns", 1500000001);
	set_counter("bytes_read", 4096);
	set_counter("resident_bytes", 7);
	set_counter("hits", 18446744073709551615u);
	(void)write_text(1);
	expect_line("# TYPE cnre_felt_wait_seconds counter");
	expect_line("# UNIT cnre_felt_wait_seconds seconds");
	expect_line("cnre_felt_wait_seconds_total 1.500000001");
	expect_line("# HELP cnre_read_bytes Bytes read from the checkpoint, alignment included.");
	expect_line("cnre_read_bytes_total 4096");
	expect_line("# TYPE cnre_resident_bytes gauge");
	expect_line("# UNIT cnre_resident_bytes bytes");
	expect_line("cnre_resident_bytes 7");
	expect_line("cnre_hits_total 18446744073709551615");
	expect_line("cnre_start_time_seconds 1700000000.250");
	cr_expect_str_eq(text + strlen(text) - 6, "# EOF\n");
}

Test(manager_metrics_text, the_older_format_names_counters_by_their_total)
{
	(void)write_text(0);
	expect_line("# TYPE cnre_felt_wait_seconds_total counter");
	expect_line("cnre_felt_wait_seconds_total 0.000000000");
	cr_expect_null(strstr(text, "# UNIT"));
	cr_expect_null(strstr(text, "# EOF"));
}

Test(manager_metrics_text, names_cannot_end_a_label_or_a_line)
{
	snapshot.client_count = 1;
	(void)snprintf(snapshot.client[0].name, sizeof snapshot.client[0].name, "a\"} 9\nb\\\xff");
	snapshot.client[0].accesses = 3;
	(void)write_text(1);
	expect_line("cnre_client_accesses_total{client=\"a\\\"} 9?b\\\\?\"} 3");
}

Test(manager_metrics_text, buckets_are_cumulated_and_bounds_belong_to_theirs)
{
	metrics_observe(&snapshot.model[0].service, 100000);       /* the first bound itself */
	metrics_observe(&snapshot.model[0].service, 100001);
	metrics_observe(&snapshot.model[0].service, 31000000000);  /* beyond the last */
	metrics_observe(&snapshot.model[0].service, -5);           /* a clock that went wrong */
	(void)write_text(1);
	expect_line("cnre_load_service_seconds_bucket{model=\"olmoe\",view=\"\",le=\"0.0001\"} 2");
	expect_line("cnre_load_service_seconds_bucket{model=\"olmoe\",view=\"\",le=\"0.00025\"} 3");
	expect_line("cnre_load_service_seconds_bucket{model=\"olmoe\",view=\"\",le=\"30.0\"} 3");
	expect_line("cnre_load_service_seconds_bucket{model=\"olmoe\",view=\"\",le=\"+Inf\"} 4");
	expect_line("cnre_load_service_seconds_count{model=\"olmoe\",view=\"\"} 4");
	expect_line("cnre_load_service_seconds_sum{model=\"olmoe\",view=\"\"} 31.000200001");
}

Test(manager_metrics_text, distances_end_with_what_a_bucket_holds_and_first_uses_are_apart)
{
	snapshot.model[0].distances = (struct curve_distances){.first_uses = 7, .sum = 9, .bucket = {2, 1, 3}};
	(void)write_text(1);
	expect_line("# UNIT cnre_model_reuse_distance_experts experts");
	expect_line("cnre_model_reuse_distance_experts_bucket{model=\"olmoe\",view=\"\",le=\"0.0\"} 2");
	expect_line("cnre_model_reuse_distance_experts_bucket{model=\"olmoe\",view=\"\",le=\"1.0\"} 3");
	expect_line("cnre_model_reuse_distance_experts_bucket{model=\"olmoe\",view=\"\",le=\"3.0\"} 6");
	expect_line("cnre_model_reuse_distance_experts_bucket{model=\"olmoe\",view=\"\",le=\"65535.0\"} 6");
	expect_line("cnre_model_reuse_distance_experts_bucket{model=\"olmoe\",view=\"\",le=\"+Inf\"} 6");
	expect_line("cnre_model_reuse_distance_experts_sum{model=\"olmoe\",view=\"\"} 9");
	expect_line("cnre_model_reuse_distance_experts_count{model=\"olmoe\",view=\"\"} 6");
	expect_line("cnre_model_first_uses_total{model=\"olmoe\",view=\"\"} 7");
}

Test(manager_metrics_text, tiers_add_up_and_prefetches_end_in_one_way_each)
{
	set_counter("hits", 10);
	set_counter("misses", 3);
	set_counter("vram_hits", 4);
	snapshot.model[0].prefetches_ended[PREFETCH_LATE] = 5;
	(void)write_text(1);
	expect_line("cnre_tier_accesses_total{tier=\"vram\"} 4");
	expect_line("cnre_tier_accesses_total{tier=\"ram\"} 6");
	expect_line("cnre_tier_accesses_total{tier=\"drive\"} 3");
	expect_line("cnre_model_prefetches_total{model=\"olmoe\",view=\"\",outcome=\"late\"} 5");
	expect_line("cnre_model_prefetches_total{model=\"olmoe\",view=\"\",outcome=\"used\"} 0");
}

Test(manager_metrics_text, a_gpu_has_its_own_series_by_what_it_is)
{
	(void)write_text(1);
	cr_expect_null(strstr(text, "cnre_vram_device_"), "without a GPU there are none");
	snapshot.vram_count = 1;
	snapshot.vram[0] = (struct metrics_vram){.uuid = "GPU-1", .serves = 1, .charged_bytes = 7, .upload_ns = 1500000000, .refused = 2};
	(void)write_text(1);
	expect_line("cnre_vram_device_serves{device=\"GPU-1\"} 1");
	expect_line("cnre_vram_device_charged_bytes{device=\"GPU-1\"} 7");
	expect_line("cnre_vram_device_upload_seconds_total{device=\"GPU-1\"} 1.500000000");
	expect_line("cnre_vram_device_evictions_refused_total{device=\"GPU-1\"} 2");
}

Test(manager_metrics_text, a_full_snapshot_has_a_line_for_each_place_and_no_more)
{
	size_t lines = 0;

	snapshot.model_count = MANAGER_MODELS_MAX;
	snapshot.layer_count = METRICS_LAYERS_MAX + MANAGER_MODELS_MAX;
	snapshot.client_count = METRICS_CLIENTS_MAX + 1;
	snapshot.drive_count = LOADER_DRIVES_MAX;
	snapshot.vram_count = CNRE_VRAM_DEVICES_MAX;
	for (uint32_t i = 0; i < MANAGER_MODELS_MAX; i++)
		memset(snapshot.model[i].name, '"', sizeof snapshot.model[i].name - 1);
	for (uint32_t i = 0; i < snapshot.layer_count; i++)
		snapshot.layer[i].layer = i < METRICS_LAYERS_MAX ? i : METRICS_LAYER_OTHER;
	(void)write_text(1);
	for (const char *at = text; (at = strstr(at, "cnre_layer_loads_total{")) != NULL; at++)
		lines++;
	cr_expect_eq(lines, METRICS_LAYERS_MAX + MANAGER_MODELS_MAX);
	cr_expect_not_null(strstr(text, ",layer=\"other\"} 0\n"));
	cr_expect_str_eq(text + strlen(text) - 6, "# EOF\n");
}
