/* SPDX-License-Identifier: Apache-2.0 */
/* The report of waits, as JSON and as text; see waits.h. */
#include "base/clock.h"
#include "tools/ctl/format.h"
#include "tools/inspect/waits.h"

#include <stdlib.h>
#include <string.h>

#define BAR_COLUMNS 40u

static json_t *buckets_of(const struct histogram *histogram)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
		if (histogram->bucket[i] > 0)
			(void)json_array_append_new(list, json_pack("{s:I, s:I}", "below_ns", (json_int_t)(1ll << (i < 62 ? i : 62)), "count",
								    (json_int_t)histogram->bucket[i]));
	return list;
}

static json_t *times_of(const struct histogram *histogram)
{
	return json_pack("{s:I, s:f, s:f, s:f, s:f, s:o}", "count", (json_int_t)histogram->count, "sum_s", (double)histogram->sum_ns / 1e9,
			 "p50_s", (double)histogram_quantile_ns(histogram, 0.5) / 1e9, "p99_s",
			 (double)histogram_quantile_ns(histogram, 0.99) / 1e9, "max_s", (double)histogram->max_ns / 1e9, "buckets",
			 buckets_of(histogram));
}

static json_t *layers_of(const struct inspect *inspect)
{
	const struct waits *waits = inspect->state;
	json_t *list = json_array();

	for (uint32_t i = 0; i < waits->layer_count; i++) {
		const struct waits_layer *layer = &waits->layer[i];
		json_t *json = times_of(&layer->all), *by = json_object();

		for (uint32_t k = 0; k < CAUSES; k++)
			(void)json_object_set_new(by, cause_name[k], json_real((double)layer->cause_ns[k] / 1e9));
		(void)json_object_set_new(json, "model",
					  json_string(layer->model < inspect->subject.model_count ? inspect->subject.model[layer->model] : "?"));
		(void)json_object_set_new(json, "layer", json_integer(layer->layer));
		(void)json_object_set_new(json, "by_s", by);
		(void)json_array_append_new(list, json);
	}
	return list;
}

static json_t *waiting_of(const struct inspect *inspect)
{
	const struct waits *waits = inspect->state;
	int64_t now_ns = cnre_clock_now_ns();
	json_t *list = json_array();

	for (uint32_t i = 0; i < waits->open_count && i < inspect->options.top; i++) {
		const struct waits_open *open = &waits->open[i];

		/* Of a batch nobody knows yet which expert ends the wait. */
		(void)json_array_append_new(list, json_pack("{s:I, s:I, s:I, s:o, s:f}", "pid", (json_int_t)open->process, "thread",
							    (json_int_t)open->thread, "layer", (json_int_t)open->layer, "expert",
							    open->expert == UINT32_MAX ? json_null() : json_integer(open->expert), "seconds",
							    (double)(now_ns - (int64_t)open->begin_ns) / 1e9));
	}
	return list;
}

/* What the manager's own counters say of the same time; null where it does not answer. */
static json_t *counted_s(const struct inspect *inspect)
{
	char message[INSPECT_MESSAGE_BYTES];
	json_t *now = NULL, *seconds;

	if (inspect->before == NULL || subject_ask(&inspect->subject, "stats", &now, message) < 0)
		return json_null();
	seconds = json_real((double)(json_integer_value(json_object_get(now, "felt_wait_ns")) -
				     json_integer_value(json_object_get(inspect->before, "felt_wait_ns"))) /
			    1e9);
	json_decref(now);
	return seconds;
}

json_t *waits_report(struct inspect *inspect)
{
	const struct waits *waits = inspect->state;
	json_t *report = inspect_report_new(inspect), *causes = json_object();

	for (uint32_t i = 0; i < CAUSES; i++)
		(void)json_object_set_new(causes, cause_name[i], times_of(&waits->cause[i]));
	(void)json_object_set_new(report, "waits", times_of(&waits->all));
	(void)json_object_set_new(report, "failed", json_integer((json_int_t)waits->failed));
	(void)json_object_set_new(report, "joins", json_integer((json_int_t)waits->joins));
	(void)json_object_set_new(report, "counted_s", counted_s(inspect));
	(void)json_object_set_new(report, "causes", causes);
	(void)json_object_set_new(report, "layers", layers_of(inspect));
	(void)json_object_set_new(report, "waiting", waiting_of(inspect));
	return report;
}

/* ---- text ---- */

static double real(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

static void print_times(FILE *out, const json_t *times, double all_s)
{
	char a[FORMAT_BYTES], b[FORMAT_BYTES], c[FORMAT_BYTES], d[FORMAT_BYTES];

	fprintf(out, "%9lld %10s %6.1f %% %10s %10s %10s", (long long)json_integer_value(json_object_get(times, "count")),
		format_seconds(real(times, "sum_s"), a), all_s > 0 ? 100 * real(times, "sum_s") / all_s : 0.0,
		format_seconds(real(times, "p50_s"), b), format_seconds(real(times, "p99_s"), c), format_seconds(real(times, "max_s"), d));
}

static void print_histogram(FILE *out, const json_t *times)
{
	const json_t *buckets = json_object_get(times, "buckets"), *bucket;
	json_int_t most = 1;
	char below[FORMAT_BYTES];
	size_t i;

	json_array_foreach (buckets, i, bucket)
		if (json_integer_value(json_object_get(bucket, "count")) > most)
			most = json_integer_value(json_object_get(bucket, "count"));
	json_array_foreach (buckets, i, bucket) {
		json_int_t count = json_integer_value(json_object_get(bucket, "count"));
		unsigned columns = (unsigned)(count * BAR_COLUMNS / most);

		fprintf(out, "  below %10s %9lld  %.*s\n", format_seconds((double)json_integer_value(json_object_get(bucket, "below_ns")) / 1e9, below),
			(long long)count, (int)columns, "########################################");
	}
}

static void print_layers(FILE *out, const json_t *report, double all_s)
{
	const json_t *layer;
	size_t i;

	fprintf(out, "\n%-16s %5s %9s %10s %8s %10s %10s %10s  QUEUE/DISK/VERIFY/SCHEDULER/UNKNOWN, %%\n", "MODEL", "LAYER", "WAITS", "FELT", "SHARE", "P50",
		"P99", "MOST");
	json_array_foreach (json_object_get(report, "layers"), i, layer) {
		const json_t *by = json_object_get(layer, "by_s");
		double sum_s = real(layer, "sum_s");

		fprintf(out, "%-16s %5lld ", json_string_value(json_object_get(layer, "model")), (long long)json_integer_value(json_object_get(layer, "layer")));
		print_times(out, layer, all_s);
		for (uint32_t k = 0; k < CAUSES; k++)
			fprintf(out, "%s%.0f", k == 0 ? "  " : "/", sum_s > 0 ? 100 * real(by, cause_name[k]) / sum_s : 0.0);
		fputc('\n', out);
	}
}

void waits_print(FILE *out, const json_t *report)
{
	const json_t *all = json_object_get(report, "waits"), *causes = json_object_get(report, "causes");
	double all_s = real(all, "sum_s");
	char a[FORMAT_BYTES];

	inspect_print_head(out, report);
	fprintf(out, "%-12s %9s %10s %8s %10s %10s %10s\n%-12s ", "CAUSE", "WAITS", "FELT", "SHARE", "P50", "P99", "MOST", "all");
	print_times(out, all, all_s);
	fputc('\n', out);
	for (uint32_t i = 0; i < CAUSES; i++) {
		fprintf(out, "%-12s ", cause_name[i]);
		print_times(out, json_object_get(causes, cause_name[i]), all_s);
		fputc('\n', out);
	}
	if (!json_is_null(json_object_get(report, "counted_s")))
		fprintf(out, "the manager's counters say %s\n", format_seconds(real(report, "counted_s"), a));
	fprintf(out, "%zu threads wait now; %lld waits ended with an error, %lld in another's load\n\n", json_array_size(json_object_get(report, "waiting")),
		(long long)json_integer_value(json_object_get(report, "failed")), (long long)json_integer_value(json_object_get(report, "joins")));
	print_histogram(out, all);
	print_layers(out, report, all_s);
	inspect_print_notes(out, report);
}
