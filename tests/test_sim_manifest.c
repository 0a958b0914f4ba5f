/* SPDX-License-Identifier: Apache-2.0 */
/* Costs of layers: defaults, what JSON says, and what it must not say. */
#include "tools/sim/manifest.h"

#include "tests/support/traces.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(sim_manifest, .timeout = 60);

static struct traces traces; /* layers 1 (5 experts) and 3 (8) */

static void load(void)
{
	traces_make(&traces);
	traces_add_text(&traces, "t", "0 1 4\n0 3 7\n");
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
}

static int open_text(struct sim_manifest *manifest, const char *text, char message[512])
{
	char path[128];

	folder_write(&traces.folder, "m.json", text, strlen(text));
	return sim_manifest_open(manifest, folder_path(&traces.folder, "m.json", path, sizeof path), traces.geometry,
				 2.0, 0.5, 7, message, 512);
}

#define LAYER3 "\"3\": {\"resident_bytes\": 4000000}"

Test(sim_manifest, without_a_file_an_expert_is_a_byte_and_a_miss_costs_what_is_said)
{
	struct sim_manifest manifest;
	char message[512] = "";

	load();
	cr_assert_eq(sim_manifest_open(&manifest, NULL, traces.geometry, 0, 0, 7, message, sizeof message), 0);
	cr_expect_eq(manifest.layer[0].resident_bytes, 1);
	cr_expect_eq(manifest.layer[1].read_bytes, 1);
	cr_expect_float_eq(manifest.layer[1].felt_miss_us, 7, 1e-9);
	cr_expect_eq(manifest.layer[0].max_experts, 5);
	cr_expect_eq(manifest.layer[1].max_experts, 8);
	cr_expect_eq(manifest.layer[1].numa_node, -1);
	cr_expect_str_eq(manifest.layer[1].tier, "ram");
	sim_manifest_close(&manifest);
	traces_remove(&traces);
}

/* 1e6 bytes at 2 GB/s are 500 us, of which half is felt. */
Test(sim_manifest, what_is_not_said_follows_from_the_bytes)
{
	struct sim_manifest manifest;
	char message[512] = "";

	load();
	cr_assert_eq(open_text(&manifest,
			       "{\"layers\": {\"1\": {\"resident_bytes\": 1000000, \"read_bytes\": 500000}, " LAYER3
			       ", \"77\": {\"resident_bytes\": 5}}}",
			       message),
		     0, "%s", message);
	cr_expect_eq(manifest.layer[0].resident_bytes, 1000000);
	cr_expect_eq(manifest.layer[0].read_bytes, 500000);
	cr_expect_float_eq(manifest.layer[0].felt_miss_us, 125, 1e-9);
	cr_expect_eq(manifest.layer[1].read_bytes, 4000000);
	cr_expect_float_eq(manifest.layer[1].felt_miss_us, 1000, 1e-9);
	cr_expect_float_eq(manifest.token_us, 0, 1e-9);
	sim_manifest_close(&manifest);
	traces_remove(&traces);
}

/* Layer 1 says all of it, layer 3 nothing: 4e6 bytes at 20 GB/s are 200 us. */
Test(sim_manifest, what_vram_costs_is_said_or_follows_from_the_bytes)
{
	struct sim_manifest manifest;
	char message[512] = "";

	load();
	cr_assert_eq(open_text(&manifest,
			       "{\"layers\": {\"1\": {\"resident_bytes\": 1000000, \"vram_bytes\": 2097152, \"ram_hit_us\": 7, "
			       "\"upload_us\": 0}, " LAYER3 "}}",
			       message),
		     0, "%s", message);
	sim_manifest_uploads(&manifest, traces.geometry, 20);
	cr_expect_eq(manifest.layer[0].vram_bytes, 2097152);
	cr_expect_float_eq(manifest.layer[0].ram_hit_us, 7, 1e-9);
	cr_expect_float_eq(manifest.layer[0].upload_us, 0, 1e-9);
	cr_expect_eq(manifest.layer[1].vram_bytes, 4000000);
	cr_expect_float_eq(manifest.layer[1].ram_hit_us, 200, 1e-9);
	cr_expect_float_eq(manifest.layer[1].upload_us, 200, 1e-9);
	sim_manifest_close(&manifest);
	traces_remove(&traces);
}

Test(sim_manifest, every_field_is_taken)
{
	struct sim_manifest manifest;
	char message[512] = "";

	load();
	cr_assert_eq(
		open_text(
			&manifest,
			"{\"token_us\": 2.5, \"layers\": {" LAYER3
			", \"1\": {\"resident_bytes\": 10, \"read_bytes\": 20, "
			"\"felt_miss_us\": 0, \"hidden_us\": 3, \"max_experts\": 3, \"page_cache\": 0.25, \"page_cache_us\": 4, "
			"\"numa_node\": 1, \"remote_hit_us\": 5, \"migration_us\": 6, \"tier\": \"vram\"}}}",
			message),
		0, "%s", message);
	cr_expect_float_eq(manifest.token_us, 2.5, 1e-9);
	cr_expect_float_eq(manifest.layer[0].felt_miss_us, 0, 1e-9);
	cr_expect_float_eq(manifest.layer[0].hidden_us, 3, 1e-9);
	cr_expect_eq(manifest.layer[0].max_experts, 3);
	cr_expect_float_eq(manifest.layer[0].page_cache, .25, 1e-9);
	cr_expect_float_eq(manifest.layer[0].page_cache_us, 4, 1e-9);
	cr_expect_eq(manifest.layer[0].numa_node, 1);
	cr_expect_float_eq(manifest.layer[0].remote_hit_us, 5, 1e-9);
	cr_expect_float_eq(manifest.layer[0].migration_us, 6, 1e-9);
	cr_expect_str_eq(manifest.layer[0].tier, "vram");
	sim_manifest_close(&manifest);
	traces_remove(&traces);
}

Test(sim_manifest, max_experts_beyond_the_layer_is_all_of_it)
{
	struct sim_manifest manifest;
	char message[512] = "";

	load();
	cr_assert_eq(open_text(&manifest,
			       "{\"layers\": {\"1\": {\"resident_bytes\": 1, \"max_experts\": 256}, " LAYER3 "}}",
			       message),
		     0, "%s", message);
	cr_expect_eq(manifest.layer[0].max_experts, 5);
	sim_manifest_close(&manifest);
	traces_remove(&traces);
}

#define WITH(fields) "{\"layers\": {" LAYER3 ", \"1\": {\"resident_bytes\": 10, " fields "}}}"

Test(sim_manifest, what_is_wrong_is_refused_with_the_path_of_its_key)
{
	static const struct {
		const char *text, *expected;
	} wrong[] = {
		{"{\"layers\": {" LAYER3 "}}", ": layers.1: missing"},
		{"{\"layers\": {" LAYER3 ", \"1\": {}}}", ": layers.1.resident_bytes: missing"},
		{"{\"layers\": {" LAYER3 ", \"1\": 5}}", ": layers.1: expected an object"},
		{"{\"layers\": {" LAYER3 ", \"01\": {\"resident_bytes\": 1}}}", ": layers.01: expected the number"},
		{"{\"layers\": {" LAYER3 ", \"x\": {\"resident_bytes\": 1}}}", ": layers.x: expected the number"},
		{"{\"layers\": {" LAYER3 ", \"4096\": {\"resident_bytes\": 1}}}", ": layers.4096: expected the number"},
		{"{\"layers\": []}", ": layers: expected an object"},
		{"{}", ": layers: expected an object"},
		{"[]", ": layers: expected an object"},
		{"{\"layer\": {}, \"layers\": {}}", ": layer: unknown"},
		{"{\"token_us\": -1, \"layers\": {}}", ": token_us: expected microseconds"},
		{WITH("\"read_byte\": 1"), ": layers.1.read_byte: unknown"},
		{WITH("\"read_bytes\": 0"), ": layers.1.read_bytes: expected a whole number of bytes"},
		{WITH("\"read_bytes\": -1"), ": layers.1.read_bytes: expected"},
		{WITH("\"read_bytes\": 1.5"), ": layers.1.read_bytes: expected"},
		{WITH("\"read_bytes\": \"1\""), ": layers.1.read_bytes: expected"},
		{WITH("\"read_bytes\": 281474976710657"), ": layers.1.read_bytes: expected"},
		{WITH("\"felt_miss_us\": -0.5"), ": layers.1.felt_miss_us: expected"},
		{WITH("\"felt_miss_us\": 1e13"), ": layers.1.felt_miss_us: expected"},
		{WITH("\"felt_miss_us\": null"), ": layers.1.felt_miss_us: expected"},
		{WITH("\"hidden_us\": true"), ": layers.1.hidden_us: expected"},
		{WITH("\"max_experts\": 0"), ": layers.1.max_experts: expected"},
		{WITH("\"page_cache\": 1.01"), ": layers.1.page_cache: expected a share"},
		{WITH("\"numa_node\": 1024"), ": layers.1.numa_node: expected"},
		{WITH("\"tier\": \"\""), ": layers.1.tier: expected"},
		{WITH("\"tier\": \"a-very-long-name\""), ": layers.1.tier: expected"},
		{WITH("\"tier\": \"A\""), ": layers.1.tier: expected"},
		{WITH("\"felt_miss_us\": NaN"), "m.json:1: "},
		{WITH("\"felt_miss_us\": 1e999"), "m.json:1: "},
		{WITH("\"felt_miss_us\": 1, \"felt_miss_us\": 2"), "m.json:1: "},
		{"", "m.json:1: "},
	};
	struct sim_manifest manifest = {.token_us = 99};
	char message[512];
	int result;
	size_t i;

	load();
	for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		message[0] = '\0';
		result = open_text(&manifest, wrong[i].text, message);
		cr_expect(result == -EINVAL && strstr(message, wrong[i].expected) != NULL, "%zu: %d %s", i, result,
			  message);
	}
	cr_expect_float_eq(manifest.token_us, 99, 1e-9, "untouched on failure");
	traces_remove(&traces);
}

Test(sim_manifest, a_bandwidth_of_nothing_is_refused)
{
	struct sim_manifest manifest;
	char message[512] = "";

	load();
	cr_expect_eq(sim_manifest_open(&manifest, "absent", traces.geometry, 0, 1, 1, message, sizeof message),
		     -EINVAL);
	cr_expect_not_null(strstr(message, "bandwidth"));
	cr_expect_eq(sim_manifest_open(&manifest, "absent", traces.geometry, 3, 1, 1, message, sizeof message),
		     -ENOENT);
	cr_expect_not_null(strstr(message, "absent: No such file"), "%s", message);
	traces_remove(&traces);
}

/* 13,312 bytes an expert, layers 2 to 5; read whole pages, so a slab is larger. */
Test(sim_manifest, a_directory_is_a_checkpoint_whose_experts_have_sizes)
{
	const char *directory = getenv("CNRE_VECTORS");
	struct sim_manifest manifest;
	char path[128], message[512] = "";
	int result;

	(void)snprintf(path, sizeof path, "%s/olmoe-a", directory != NULL ? directory : "../shared/vectors");
	if (access(path, R_OK) < 0)
		cr_skip("no reference vectors at %s (set CNRE_VECTORS)", path);
	load();
	result = sim_manifest_open(&manifest, path, traces.geometry, 1, 1, 1, message, sizeof message);
	cr_assert_eq(result, 0, "%s", message);
	cr_expect_gt(manifest.layer[0].read_bytes, 1000);
	cr_expect_geq(manifest.layer[0].resident_bytes, manifest.layer[0].read_bytes);
	cr_expect_float_eq(manifest.layer[0].felt_miss_us, (double)manifest.layer[0].read_bytes / 1000, 1e-6);
	sim_manifest_close(&manifest);
	traces_remove(&traces);
	traces_make(&traces);
	traces_add_text(&traces, "t", "0 4 4\n");
	cr_assert_eq(traces_load(&traces), 0);
	cr_expect_eq(sim_manifest_from_model(&manifest, path, traces.geometry, 1, 1, message, sizeof message), -EINVAL);
	cr_expect_not_null(strstr(message, "layers.4: the traces have this layer"), "%s", message);
	traces_remove(&traces);
}
