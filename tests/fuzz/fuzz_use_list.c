/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: any bytes as a file that says how often experts were used. It is taken, and every expert with uses has a
 * place of its own in it, or it is refused with one line.
 */
#include "base/check.h"
#include "model/use_list.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LAYERS = 5, OWN_LAYERS = 4, EXPERTS = 16, COUNTS = LAYERS * EXPERTS };

static void check_places(const struct use_list *list)
{
	unsigned char seen[COUNTS + 1] = {0};
	uint32_t places = 0;

	for (uint32_t i = 0; i < COUNTS; i++) {
		uint32_t place = list->first[i];

		CNRE_CHECK((list->usage.count[i] > 0) == (place > 0) && place <= list->places);
		CNRE_CHECK(place == 0 || seen[place]++ == 0);
		places += place > 0;
	}
	CNRE_CHECK(places == list->places);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct use_list list;
	char message[256] = "";
	int r;

	CNRE_CHECK(use_list_open(&list, LAYERS, OWN_LAYERS, EXPERTS, size % 2 == 0 ? 0 : usage_engine("olmoe")) == 0);
	r = use_list_read(&list, data, size, message, sizeof message);
	CNRE_CHECK(r <= 0 && (r == 0) == (message[0] == '\0') && strchr(message, '\n') == NULL);
	if (r == 0)
		check_places(&list);
	use_list_close(&list);
	return 0;
}
