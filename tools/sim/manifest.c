/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Costs of layers, from JSON; see manifest.h. Strict, for a number under a misspelt key would be replaced by a default in
 * silence. Messages name the path of the key, as layers.3.read_bytes.
 */
#include "tools/sim/manifest.h"

#include "base/check.h"
#include "base/message.h"
#include "model/catalog.h"
#include "tools/sim/file.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BYTES_MAX (1ull << 48) /* of one expert */
#define US_MAX 1e12            /* eleven days */
#define NODE_MAX 1023

struct parsing {
	const char *path;
	char *message;
	size_t message_bytes;
	double us_per_byte;
};

enum kind { KIND_BYTES, KIND_COUNT, KIND_US, KIND_SHARE, KIND_NODE, KIND_TIER };

static const struct field {
	const char *name;
	size_t offset;
	enum kind kind;
} fields[] = {
	{"resident_bytes", offsetof(struct sim_layer_cost, resident_bytes), KIND_BYTES},
	{"read_bytes", offsetof(struct sim_layer_cost, read_bytes), KIND_BYTES},
	{"felt_miss_us", offsetof(struct sim_layer_cost, felt_miss_us), KIND_US},
	{"hidden_us", offsetof(struct sim_layer_cost, hidden_us), KIND_US},
	{"max_experts", offsetof(struct sim_layer_cost, max_experts), KIND_COUNT},
	{"page_cache", offsetof(struct sim_layer_cost, page_cache), KIND_SHARE},
	{"page_cache_us", offsetof(struct sim_layer_cost, page_cache_us), KIND_US},
	{"numa_node", offsetof(struct sim_layer_cost, numa_node), KIND_NODE},
	{"remote_hit_us", offsetof(struct sim_layer_cost, remote_hit_us), KIND_US},
	{"migration_us", offsetof(struct sim_layer_cost, migration_us), KIND_US},
	{"tier", offsetof(struct sim_layer_cost, tier), KIND_TIER},
	{"vram_bytes", offsetof(struct sim_layer_cost, vram_bytes), KIND_BYTES},
	{"ram_hit_us", offsetof(struct sim_layer_cost, ram_hit_us), KIND_US},
	{"upload_us", offsetof(struct sim_layer_cost, upload_us), KIND_US},
};

static int refuse(const struct parsing *parsing, const char *layer, const char *key, const char *expected)
{
	return cnre_message(parsing->message, parsing->message_bytes, -EINVAL, "%s: %s%.40s%s%.40s: %s", parsing->path,
			    layer != NULL ? "layers." : "", layer != NULL ? layer : "",
			    layer != NULL && key[0] != '\0' ? "." : "", key, expected);
}

static int take_whole(const json_t *value, json_int_t min, json_int_t max, json_int_t *ret_number)
{
	if (!json_is_integer(value) || json_integer_value(value) < min || json_integer_value(value) > max)
		return -EINVAL;
	*ret_number = json_integer_value(value);
	return 0;
}

static int take_real(const json_t *value, double max, double *ret_number)
{
	double number = json_number_value(value);

	if (!json_is_number(value) || !isfinite(number) || number < 0 || number > max)
		return -EINVAL;
	*ret_number = number;
	return 0;
}

static int take_tier(const json_t *value, char tier[16])
{
	const char *text = json_string_value(value);
	size_t bytes = text != NULL ? strlen(text) : 0;

	if (bytes == 0 || bytes >= 16 || strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-_") != bytes)
		return -EINVAL;
	memcpy(tier, text, bytes + 1);
	return 0;
}

static const char *take_field(const struct field *field, const json_t *value, struct sim_layer_cost *cost)
{
	void *to = (char *)cost + field->offset;
	json_int_t whole = 0;

	switch (field->kind) {
	case KIND_BYTES:
		if (take_whole(value, 1, BYTES_MAX, &whole) < 0)
			return "expected a whole number of bytes from 1 to 2^48";
		*(uint64_t *)to = (uint64_t)whole;
		return NULL;
	case KIND_COUNT:
		if (take_whole(value, 1, SIM_EXPERTS_MAX, &whole) < 0)
			return "expected a whole number of experts from 1 to 65536";
		*(uint32_t *)to = (uint32_t)whole;
		return NULL;
	case KIND_NODE:
		if (take_whole(value, -1, NODE_MAX, &whole) < 0)
			return "expected a NUMA node from 0 to 1023, or -1";
		*(int32_t *)to = (int32_t)whole;
		return NULL;
	case KIND_US:
		return take_real(value, US_MAX, to) < 0 ? "expected microseconds from 0 to 1e12" : NULL;
	case KIND_SHARE:
		return take_real(value, 1.0, to) < 0 ? "expected a share from 0 to 1" : NULL;
	default:
		return take_tier(value, to) < 0 ? "expected a name of a tier: 1 to 15 of a-z 0-9 - _" : NULL;
	}
}

/* What a layer does not say keeps a mark: 0 bytes, negative microseconds. */
#define UNSAID_COST {.felt_miss_us = -1, .numa_node = -1, .tier = "ram", .ram_hit_us = -1, .upload_us = -1}

static int take_layer(const struct parsing *parsing, const char *name, json_t *object, struct sim_layer_cost *ret_cost)
{
	struct sim_layer_cost cost = UNSAID_COST;
	const char *key, *expected;
	json_t *value;
	size_t i;

	if (!json_is_object(object))
		return refuse(parsing, name, "", "expected an object of costs");
	json_object_foreach (object, key, value) {
		for (i = 0; i < CNRE_COUNT_OF(fields) && strcmp(key, fields[i].name) != 0; i++)
			;
		if (i == CNRE_COUNT_OF(fields))
			return refuse(parsing, name, key,
				      "unknown: known are resident_bytes read_bytes felt_miss_us hidden_us "
				      "max_experts page_cache page_cache_us numa_node remote_hit_us migration_us tier "
				      "vram_bytes ram_hit_us upload_us");
		expected = take_field(&fields[i], value, &cost);
		if (expected != NULL)
			return refuse(parsing, name, key, expected);
	}
	if (cost.resident_bytes == 0)
		return refuse(parsing, name, "resident_bytes", "missing: say what one expert occupies");
	*ret_cost = cost;
	return 0;
}

static void apply_defaults(struct sim_layer_cost *cost, uint32_t experts, double us_per_byte)
{
	if (cost->read_bytes == 0)
		cost->read_bytes = cost->resident_bytes;
	if (cost->vram_bytes == 0)
		cost->vram_bytes = cost->resident_bytes;
	if (cost->felt_miss_us < 0)
		cost->felt_miss_us = (double)cost->read_bytes * us_per_byte;
	if (cost->max_experts == 0 || cost->max_experts > experts)
		cost->max_experts = experts;
}

/* A number as JSON keys write it: 0, or without zeros before it. */
static int parse_layer_number(const char *text, uint32_t *ret_number)
{
	size_t digits = strspn(text, "0123456789");

	if (digits == 0 || digits > 4 || text[digits] != '\0' || (text[0] == '0' && digits > 1))
		return -EINVAL;
	*ret_number = (uint32_t)strtoul(text, NULL, 10);
	return *ret_number < SIM_LAYERS_MAX ? 0 : -EINVAL;
}

static int take_layers(const struct parsing *parsing, json_t *layers, const struct sim_geometry *geometry,
		       struct sim_layer_cost *to)
{
	struct sim_layer_cost cost;
	uint32_t number = 0, i;
	const char *key;
	json_t *value;
	char name[16];
	int result;

	json_object_foreach (layers, key, value) {
		if (parse_layer_number(key, &number) < 0)
			return refuse(parsing, key, "", "expected the number of a layer, below 4096");
		result = take_layer(parsing, key, value, &cost);
		if (result < 0)
			return result;
		for (i = 0; i < geometry->layer_count; i++)
			if (geometry->number[i] == number) {
				apply_defaults(&cost, geometry->experts[i], parsing->us_per_byte);
				to[i] = cost;
			}
	}
	for (i = 0; i < geometry->layer_count; i++) {
		(void)snprintf(name, sizeof name, "%u", geometry->number[i]);
		if (to[i].resident_bytes == 0)
			return refuse(parsing, name, "", "missing: the traces have this layer");
	}
	return 0;
}

static int take_root(const struct parsing *parsing, json_t *root, const struct sim_geometry *geometry,
		     struct sim_manifest *manifest)
{
	json_t *layers = json_object_get(root, "layers"), *value;
	const char *key;

	if (!json_is_object(layers))
		return refuse(parsing, NULL, "layers", "expected an object with the numbers of layers as keys");
	json_object_foreach (root, key, value) {
		if (strcmp(key, "token_us") == 0) {
			if (take_real(value, US_MAX, &manifest->token_us) < 0)
				return refuse(parsing, NULL, key, "expected microseconds from 0 to 1e12");
		} else if (strcmp(key, "layers") != 0) {
			return refuse(parsing, NULL, key, "unknown: layers and token_us are known");
		}
	}
	return take_layers(parsing, layers, geometry, manifest->layer);
}

static int load_json(const struct parsing *parsing, json_t **ret_root)
{
	json_error_t error;
	char *text = NULL;
	size_t bytes = 0;
	json_t *root;
	int result = sim_file_read(parsing->path, SIM_MANIFEST_BYTES_MAX, &text, &bytes, parsing->message,
				   parsing->message_bytes);

	if (result < 0)
		return result;
	root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
	free(text);
	if (root == NULL)
		return cnre_message(parsing->message, parsing->message_bytes, -EINVAL,
				    "%s:%d: %.160s: no JSON, or a key twice", parsing->path, error.line, error.text);
	*ret_root = root;
	return 0;
}

static int from_json(const struct parsing *parsing, const struct sim_geometry *geometry, struct sim_manifest *manifest)
{
	json_t *root = NULL;
	int result = load_json(parsing, &root);

	if (result < 0)
		return result;
	result = take_root(parsing, root, geometry, manifest);
	json_decref(root);
	return result;
}

/* The largest expert of a layer stands for all of it. */
static int from_catalog(const struct parsing *parsing, const struct model_catalog *catalog,
			const struct sim_geometry *geometry, struct sim_manifest *manifest)
{
	const struct model_layer *layer;
	const struct model_shape *shape;
	struct sim_layer_cost *cost;
	char name[16];
	uint32_t i, k;

	for (i = 0; i < geometry->layer_count; i++) {
		(void)snprintf(name, sizeof name, "%u", geometry->number[i]);
		layer = geometry->number[i] < catalog->layer_count ? &catalog->layer[geometry->number[i]] : NULL;
		if (layer == NULL || layer->expert_count < geometry->experts[i])
			return refuse(parsing, name, "",
				      layer == NULL ? "the traces have this layer, the model has not"
						    : "the traces have more experts than the model");
		cost = &manifest->layer[i];
		*cost = (struct sim_layer_cost)UNSAID_COST;
		for (k = 0; k < layer->expert_count; k++) {
			shape = &catalog->shape[catalog->object[layer->first_object + k].shape];
			cost->resident_bytes = shape->slab_bytes > cost->resident_bytes ? shape->slab_bytes
											: cost->resident_bytes;
			cost->read_bytes = shape->payload_bytes > cost->read_bytes ? shape->payload_bytes
										   : cost->read_bytes;
		}
		apply_defaults(cost, geometry->experts[i], parsing->us_per_byte);
	}
	return 0;
}

static int from_model(const struct parsing *parsing, const struct sim_geometry *geometry, struct sim_manifest *manifest)
{
	struct model_catalog *catalog = NULL;
	char reason[MODEL_MESSAGE_BYTES] = "";
	int result = model_catalog_open(&catalog, parsing->path, reason);

	if (result < 0)
		return cnre_message(parsing->message, parsing->message_bytes, result, "%s", reason);
	result = from_catalog(parsing, catalog, geometry, manifest);
	(void)model_catalog_close(catalog);
	return result;
}

static int from_header(const struct sim_geometry *geometry, double miss_us, struct sim_manifest *manifest)
{
	struct sim_layer_cost cost;
	uint32_t i;

	for (i = 0; i < geometry->layer_count; i++) {
		cost = (struct sim_layer_cost)UNSAID_COST;
		cost.felt_miss_us = miss_us;
		cost.resident_bytes = geometry->resident_bytes[i] > 0 ? geometry->resident_bytes[i] : 1;
		cost.read_bytes = geometry->read_bytes[i];
		apply_defaults(&cost, geometry->experts[i], 0);
		manifest->layer[i] = cost;
	}
	return 0;
}

static int check_speed(const struct parsing *parsing, double read_gbps, double felt_fraction)
{
	if (!isfinite(read_gbps) || read_gbps <= 0 || !isfinite(felt_fraction) || felt_fraction < 0)
		return cnre_message(
			parsing->message, parsing->message_bytes, -EINVAL,
			"read bandwidth %g GB/s, felt fraction %g: expected a number above 0, and one that is not negative",
			read_gbps, felt_fraction);
	return 0;
}

static int open_from(int (*from)(const struct parsing *, const struct sim_geometry *, struct sim_manifest *),
		     const struct parsing *parsing, const struct sim_geometry *geometry, double miss_us,
		     struct sim_manifest *ret_manifest)
{
	struct sim_manifest manifest = {.layer = calloc(geometry->layer_count, sizeof manifest.layer[0])};
	int result;

	if (manifest.layer == NULL)
		return cnre_message(parsing->message, parsing->message_bytes, -ENOMEM, "no memory for a manifest");
	result = from != NULL ? from(parsing, geometry, &manifest) : from_header(geometry, miss_us, &manifest);
	if (result < 0)
		sim_manifest_close(&manifest);
	else
		*ret_manifest = manifest;
	return result;
}

int sim_manifest_open(struct sim_manifest *ret_manifest, const char *path, const struct sim_geometry *geometry,
		      double read_gbps, double felt_fraction, double default_miss_us, char *message,
		      size_t message_bytes)
{
	struct parsing parsing = {.path = path, .message = message, .message_bytes = message_bytes};
	struct stat status;
	int result = path == NULL ? 0 : check_speed(&parsing, read_gbps, felt_fraction);

	if (result < 0)
		return result;
	if (path == NULL)
		return open_from(NULL, &parsing, geometry, default_miss_us, ret_manifest);
	parsing.us_per_byte = felt_fraction / (read_gbps * 1e3);
	return open_from(stat(path, &status) == 0 && S_ISDIR(status.st_mode) ? from_model : from_json, &parsing,
			 geometry, 0, ret_manifest);
}

int sim_manifest_from_model(struct sim_manifest *ret_manifest, const char *directory,
			    const struct sim_geometry *geometry, double read_gbps, double felt_fraction, char *message,
			    size_t message_bytes)
{
	struct parsing parsing = {.path = directory, .message = message, .message_bytes = message_bytes};
	int result = check_speed(&parsing, read_gbps, felt_fraction);

	parsing.us_per_byte = felt_fraction / (read_gbps * 1e3);
	return result < 0 ? result : open_from(from_model, &parsing, geometry, 0, ret_manifest);
}

void sim_manifest_uploads(struct sim_manifest *manifest, const struct sim_geometry *geometry, double upload_gbps)
{
	for (uint32_t i = 0; i < geometry->layer_count; i++) {
		struct sim_layer_cost *cost = &manifest->layer[i];
		double us = (double)cost->vram_bytes / (upload_gbps * 1e3);

		if (cost->ram_hit_us < 0)
			cost->ram_hit_us = us;
		if (cost->upload_us < 0)
			cost->upload_us = us;
	}
}

void sim_manifest_close(struct sim_manifest *manifest)
{
	free(manifest->layer);
	*manifest = (struct sim_manifest){0};
}
