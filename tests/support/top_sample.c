/* SPDX-License-Identifier: Apache-2.0 */
/* See top_sample.h. */
#include "tests/support/top_sample.h"

#include <criterion/criterion.h>
#include <stdio.h>

#define SAMPLE                                                                                                                     \
	"{\"stats\":{\"uptime_s\":%d.5,\"accesses\":%d,\"hits\":%d,\"loads\":%d,\"bytes_read\":%d,\"resident_bytes\":1048576,"       \
	"\"budget_bytes\":2097152,\"resident_objects\":5,\"loads_in_flight\":1,\"loads_queued\":2,\"felt_wait_s\":%d.25},"         \
	"\"clients\":{\"clients\":[{\"name\":\"alpha\",\"session\":1,\"pid\":42,\"leased\":3,\"accesses\":%d,\"hits\":%d,"         \
	"\"felt_wait_s\":0},{\"name\":\"beta\",\"session\":2,\"pid\":43,\"leased\":0,\"accesses\":0,\"hits\":0,"                   \
	"\"felt_wait_s\":%d.25}]},\"drives\":{\"drives\":[{\"name\":\"nvme0n1\",\"device\":\"259:0\",\"state\":\"degraded\","      \
	"\"bytes\":%d,\"reads\":%d,\"in_flight\":1,\"read_s\":%d}]},\"experts\":{\"model\":\"tiny\",\"policy\":\"cost\","         \
	"\"tokens\":%d,\"truncated\":false,\"layers\":[{\"layer\":3,\"experts\":6,\"resident\":3,\"visits\":%d,"                   \
	"\"state\":\"rrr...\",\"heat\":\"019410\"},{\"layer\":4,\"experts\":6,\"resident\":2,\"visits\":%d,"                       \
	"\"state\":\"l..rr.\",\"heat\":\"509900\"}]}}"

json_t *top_sample_make(int n)
{
	char text[4096];
	json_t *sample;

	(void)snprintf(text, sizeof text, SAMPLE, n, 100 * n, 75 * n, 4 * n, 2000000 * n, n, 100 * n, 75 * n, n, 2000000 * n, 4 * n, n,
		       30 * n, 10 * n, 10 * n);
	sample = json_loads(text, 0, NULL);
	cr_assert_not_null(sample);
	return sample;
}

#define GPUS                                                                                                                       \
	"{\"state\":\"on\",\"reason\":null,\"budget_bytes\":3145728,\"devices\":[{\"device\":0,\"uuid\":\"GPU-a\",\"state\":"    \
	"\"serving\",\"reason\":null,\"used_bytes\":1048576,\"budget_bytes\":2097152,\"experts\":3},{\"device\":1,"                  \
	"\"uuid\":\"GPU-b\",\"state\":\"%s\",\"reason\":%s,\"used_bytes\":%d,\"budget_bytes\":1048576,\"experts\":%d}]}"

json_t *top_sample_make_with_gpus(int n, int one_is_lost)
{
	json_t *sample = top_sample_make(n), *stats = json_object_get(sample, "stats");
	json_t *layers = json_object_get(json_object_get(sample, "experts"), "layers");
	char text[1024];

	(void)snprintf(text, sizeof text, GPUS, one_is_lost ? "lost" : "serving", one_is_lost ? "\"a thread hangs\"" : "null",
		       one_is_lost ? 0 : 524288, one_is_lost ? 0 : 1);
	(void)json_object_set_new(sample, "vram", json_loads(text, 0, NULL));
	(void)json_object_set_new(stats, "vram_hits", json_integer(30 * n));
	(void)json_object_set_new(stats, "vram_uploads", json_integer(6 * n));
	(void)json_object_set_new(json_array_get(layers, 0), "vram", json_string("0.0..0"));
	(void)json_object_set_new(json_array_get(layers, 1), "vram", json_string(one_is_lost ? "......" : "1....."));
	cr_assert_not_null(json_object_get(sample, "vram"));
	return sample;
}
