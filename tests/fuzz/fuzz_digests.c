/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: any bytes as a manifest of digests, for two models with known identities. It is taken whole, or refused
 * with one line that names the file, and then nothing of it is known.
 */
#include "base/check.h"
#include "manager/digest.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OBJECTS = 24, LAYERS = 3 };

static struct manager manager;

static void make_models(void)
{
	static struct model_layer layers[LAYERS] = {{0, 12, 1}, {0, 0, 1}, {12, 12, 1}};
	static struct model_object objects[OBJECTS];
	static struct model_catalog catalogs[2];

	for (uint32_t i = 0; i < OBJECTS; i++)
		objects[i] = (struct model_object){.layer = i / 12 * 2, .expert = i % 12};
	for (uint32_t i = 0; i < 2; i++) {
		catalogs[i] = (struct model_catalog){
			.layer_count = LAYERS, .object_count = OBJECTS, .layer = layers, .object = objects};
		memset(catalogs[i].fingerprint.identity, i == 0 ? 0x11 : 0x22, CNRE_DIGEST_BYTES);
		manager.model[i] =
			(struct served_model){.catalog = &catalogs[i], .number = i, .first_owner = i * OBJECTS};
	}
	manager.model_count = 2;
	manager.owner_count = 2 * OBJECTS;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct digest_table *table;
	char message[256] = "";
	uint64_t digest;
	int r;

	if (manager.model_count == 0)
		make_models();
	if (digest_open(&table, &manager, NULL, message, sizeof message) < 0)
		return 0;
	r = digest_read_text(table, "file", (const char *)data, size, message, sizeof message);
	CNRE_CHECK(r <= 0);
	if (r < 0)
		CNRE_CHECK(strncmp(message, "digests: file:", 14) == 0 && strchr(message, '\n') == NULL);
	for (uint32_t owner = 0; owner < manager.owner_count; owner++)
		CNRE_CHECK(r == 0 || !digest_find(table, owner, &digest));
	(void)digest_close(table);
	return 0;
}
