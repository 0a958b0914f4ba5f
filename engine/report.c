/* SPDX-License-Identifier: Apache-2.0 */
/* See report.h. Keys and units are described in cnre-olmoe(1). */
#include "engine/report.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>

static double seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

static double tokens_per_second(const struct report *report)
{
	return report->steps > 1 && report->decode_ns > 0 ? (report->steps - 1) / seconds(report->decode_ns) : 0;
}

static json_t *token_array(const struct report *report)
{
	json_t *array = json_array();

	for (uint32_t i = 0; array && i < report->steps; i++)
		(void)json_array_append_new(array, json_integer(report->tokens[i])); /* a lost one shows in the count */
	return array;
}

static json_t *bytes_or_null(const struct source_counters *counters)
{
	return counters->has_bytes_read ? json_integer((json_int_t)counters->bytes_read) : json_null();
}

static json_t *kv_object(const struct report *report)
{
	const struct turn_result *turn = report->turn;

	return json_pack("{s:s, s:i, s:i, s:i, s:i, s:f}", "store", report->kv, "matched_tokens",
			 (int)turn->matched_tokens, "computed_tokens", (int)turn->computed_tokens, "published_blocks",
			 (int)turn->published_blocks, "skipped_blocks", (int)turn->skipped_blocks,
			 "time_to_first_token_s", seconds(turn->first_ns));
}

static int print_json(const struct report *report)
{
	const struct source_counters *counters = &report->counters;
	json_t *root =
		json_pack("{s:o, s:f, s:f, s:I, s:I, s:I, s:o, s:I, s:i, s:i, s:s, s:f, s:f, s:f, s:i, s:s, s:o}",
			  "tokens", token_array(report), "tokens_per_second", tokens_per_second(report), "felt_wait_s",
			  seconds(counters->felt_wait_ns), "hits", (json_int_t)counters->hits, "misses",
			  (json_int_t)counters->misses, "joins", (json_int_t)counters->joins, "bytes_read",
			  bytes_or_null(counters), "resident_bytes", (json_int_t)counters->resident_bytes,
			  "prompt_tokens", (int)report->prompt_tokens, "steps", (int)report->steps, "cache",
			  report->cache, "load_s", seconds(report->load_ns), "prefill_s", seconds(report->prefill_ns),
			  "decode_s", seconds(report->decode_ns), "threads", (int)report->threads, "kernel",
			  report->kernel, "kv", kv_object(report));
	int failed = !root || json_array_size(json_object_get(root, "tokens")) != report->steps ||
		     json_dumpf(root, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9)) < 0 ||
		     putchar('\n') < 0;

	json_decref(root);
	return failed ? -EIO : 0;
}

static void print_text(const struct report *report)
{
	const struct source_counters *counters = &report->counters;

	printf("tokens:");
	for (uint32_t i = 0; i < report->steps; i++)
		printf(" %u", report->tokens[i]);
	printf("\nspeed: %.2f tokens/s over %u decode steps (%.3f s); prefill of %u tokens %.3f s; load %.3f s; "
	       "%u threads, %s\n",
	       tokens_per_second(report), report->steps - 1, seconds(report->decode_ns), report->prompt_tokens,
	       seconds(report->prefill_ns), seconds(report->load_ns), report->threads, report->kernel);
	printf("prefix (%s): %u tokens matched, %u computed; %u blocks published, %u skipped; first token after %.3f s\n",
	       report->kv, report->turn->matched_tokens, report->turn->computed_tokens, report->turn->published_blocks,
	       report->turn->skipped_blocks, seconds(report->turn->first_ns));
	printf("experts (%s): %llu hits, %llu misses, %llu joins; felt wait %.3f s; ", report->cache,
	       (unsigned long long)counters->hits, (unsigned long long)counters->misses,
	       (unsigned long long)counters->joins, seconds(counters->felt_wait_ns));
	if (counters->has_bytes_read)
		printf("%.1f MiB read; ", (double)counters->bytes_read / 1048576.0);
	printf("%.1f MiB resident\n", (double)counters->resident_bytes / 1048576.0);
}

int report_print(const struct report *report, bool json)
{
	int error = 0;

	if (json)
		error = print_json(report);
	else
		print_text(report);
	return error < 0 || fflush(stdout) != 0 || ferror(stdout) ? -EIO : 0;
}
