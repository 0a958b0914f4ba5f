/* SPDX-License-Identifier: Apache-2.0 */
/* Lines and report of loads; see loads.h. */
#include "tools/ctl/format.h"
#include "tools/inspect/loads.h"

#include <string.h>

static const char *const kind_name[] = {"demand", "prefetch", "warm"};
static const char *const reason_name[] = {"?", "the policy prefers what is resident", "no room", "its queue is full", "its drive hangs"};

static const char *model_of(const struct inspect *inspect, uint32_t model)
{
	return model < inspect->subject.model_count ? inspect->subject.model[model] : "?";
}

static double since(const struct inspect *inspect, uint64_t at_ns)
{
	return (double)((int64_t)at_ns - inspect->started_ns) / 1e9;
}

/* Seconds from one stage to the next; null: it did not come to it. */
static json_t *stage(uint64_t from_ns, uint64_t to_ns)
{
	if (from_ns == 0 || to_ns == 0)
		return json_null();
	/* Two processes tell: what is used at once may be told before it is published. */
	return json_real(to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0);
}

static json_t *drives_of(const struct load_entry *entry)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < entry->chunk_count; i++) {
		uint64_t bytes = 0;
		uint32_t k = 0;

		while (k < i && entry->chunk[k].drive != entry->chunk[i].drive)
			k++;
		if (k < i)
			continue;
		for (; k < entry->chunk_count; k++)
			bytes += entry->chunk[k].drive == entry->chunk[i].drive ? entry->chunk[k].bytes : 0;
		(void)json_array_append_new(list, json_pack("{s:I, s:I}", "drive", (json_int_t)entry->chunk[i].drive, "bytes", (json_int_t)bytes));
	}
	return list;
}

json_t *loads_line(const struct inspect *inspect, const struct load_entry *entry)
{
	const struct subject_client *client = entry->session == 0 ? NULL : subject_session(&inspect->subject, entry->session);

	return json_pack("{s:s, s:f, s:I, s:s, s:I, s:I, s:s, s:I, s:s, s:i, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "event", "load", "at_s",
			 since(inspect, entry->start_ns), "load", (json_int_t)entry->number, "model", model_of(inspect, entry->name.model),
			 "layer", (json_int_t)entry->name.layer, "expert", (json_int_t)entry->name.expert, "kind",
			 kind_name[entry->kind < 3 ? entry->kind : 0], "session", (json_int_t)entry->session, "client",
			 client == NULL ? "" : client->name, "status", (int)entry->status, "bytes", (json_int_t)entry->bytes_read, "reads",
			 (json_int_t)(entry->chunk_count + entry->chunks_beyond), "queued_s",
			 entry->kind == LOAD_DEMAND ? json_real((double)entry->queued_ns / 1e9) : json_null(), "admitted_s",
			 stage(entry->admit_ns, entry->start_ns), "disk_s", stage(entry->start_ns, entry->done_ns), "verify_s",
			 entry->verify_ns > 0 ? json_real((double)entry->verify_ns / 1e9) : json_null(), "publish_s",
			 stage(entry->done_ns, entry->publish_ns), "first_use_s", stage(entry->publish_ns, entry->used_ns), "drives",
			 drives_of(entry));
}

json_t *loads_refusal(const struct inspect *inspect, const struct load_name *name, uint64_t reason, uint64_t at_ns)
{
	return json_pack("{s:s, s:f, s:s, s:I, s:I, s:s}", "event", "refused", "at_s", since(inspect, at_ns), "model",
			 model_of(inspect, name->model), "layer", (json_int_t)name->layer, "expert", (json_int_t)name->expert, "reason",
			 reason_name[reason < sizeof reason_name / sizeof reason_name[0] ? reason : 0]);
}

/* ---- text ---- */

static long long number(const json_t *object, const char *key)
{
	return (long long)json_integer_value(json_object_get(object, key));
}

static const char *word(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text == NULL ? "" : text;
}

static const char *time_of(const json_t *object, const char *key, char text[FORMAT_BYTES])
{
	const json_t *value = json_object_get(object, key);

	return json_is_number(value) ? format_seconds(json_number_value(value), text) : "-";
}

void loads_print_line(FILE *out, const json_t *line)
{
	char a[FORMAT_BYTES], b[FORMAT_BYTES], c[FORMAT_BYTES], d[FORMAT_BYTES], e[FORMAT_BYTES], bytes[FORMAT_BYTES];
	const json_t *drive;
	size_t i;

	fprintf(out, "%10.6f  %s %lld/%lld  ", json_number_value(json_object_get(line, "at_s")), word(line, "model"), number(line, "layer"),
		number(line, "expert"));
	if (strcmp(word(line, "event"), "refused") == 0) {
		fprintf(out, "refused: %s\n", word(line, "reason"));
		return;
	}
	fprintf(out, "%s of %lld%s%s  queued %s  disk %s  verified %s  published +%s  first use +%s  %s", word(line, "kind"), number(line, "session"),
		word(line, "client")[0] == '\0' ? "" : " ", word(line, "client"), time_of(line, "queued_s", a), time_of(line, "disk_s", b),
		time_of(line, "verify_s", c), time_of(line, "publish_s", d), time_of(line, "first_use_s", e),
		format_bytes((uint64_t)number(line, "bytes"), bytes));
	json_array_foreach (json_object_get(line, "drives"), i, drive)
		fprintf(out, "%s drive %lld: %s", i == 0 ? " from" : ",", number(drive, "drive"), format_bytes((uint64_t)number(drive, "bytes"), bytes));
	if (number(line, "status") < 0)
		fprintf(out, "  FAILED: %s", strerror((int)-number(line, "status")));
	fputc('\n', out);
}

static json_t *times_of(const struct histogram *histogram)
{
	return json_pack("{s:I, s:f, s:f, s:f}", "count", (json_int_t)histogram->count, "p50_s",
			 (double)histogram_quantile_ns(histogram, 0.5) / 1e9, "p99_s", (double)histogram_quantile_ns(histogram, 0.99) / 1e9,
			 "max_s", (double)histogram->max_ns / 1e9);
}

json_t *loads_report(struct inspect *inspect)
{
	const struct loads *loads = inspect->state;
	json_t *report = inspect_report_new(inspect);

	(void)json_object_set_new(report, "loads", json_integer((json_int_t)loads->shown));
	(void)json_object_set_new(report, "failed", json_integer((json_int_t)loads->failed));
	(void)json_object_set_new(report, "refused", json_integer((json_int_t)loads->refused));
	(void)json_object_set_new(report, "evicted", json_integer((json_int_t)loads->evicted));
	(void)json_object_set_new(report, "under_way", json_integer((json_int_t)loads->table.reading_count));
	(void)json_object_set_new(report, "queued", times_of(&loads->queued));
	(void)json_object_set_new(report, "disk", times_of(&loads->disk));
	(void)json_object_set_new(report, "publish", times_of(&loads->verify));
	(void)json_object_set_new(report, "whole", times_of(&loads->whole));
	return report;
}

void loads_print(FILE *out, const json_t *report)
{
	static const char *const stages[] = {"queued", "disk", "publish", "whole"};
	char a[FORMAT_BYTES], b[FORMAT_BYTES], c[FORMAT_BYTES];

	fputc('\n', out);
	inspect_print_head(out, report);
	fprintf(out, "%lld loads, %lld failed, %lld under way; %lld refused, %lld evictions\n", number(report, "loads"), number(report, "failed"),
		number(report, "under_way"), number(report, "refused"), number(report, "evicted"));
	fprintf(out, "%-10s %9s %10s %10s %10s\n", "STAGE", "LOADS", "P50", "P99", "MOST");
	for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
		const json_t *times = json_object_get(report, stages[i]);

		fprintf(out, "%-10s %9lld %10s %10s %10s\n", stages[i], number(times, "count"), time_of(times, "p50_s", a),
			time_of(times, "p99_s", b), time_of(times, "max_s", c));
	}
	inspect_print_notes(out, report);
}
