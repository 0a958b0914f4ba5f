/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any bytes as the description of a family. It is taken or refused with one line that names the file. */
#include "model/family_file.h"

#include "base/check.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is taken must be usable: each name that it makes is one that it matches. */
static void check_names(const struct family *family)
{
	char text[2 * FAMILY_FILE_WORD_BYTES + 32];

	CNRE_CHECK(family->name_count <= FAMILY_NAMES_MAX && family->stems[0] != NULL);
	for (uint32_t stem = 0; family->stems[stem] != NULL; stem++)
		for (uint32_t name = 0; name < family->name_count; name++) {
			struct family_place place = {.stem = stem, .name = name, .number = 1, .expert = 2}, back;

			(void)family_make_name(family, &place, text, sizeof text);
			CNRE_CHECK(family_match(family, text, &back));
		}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char message[FAMILY_FILE_MESSAGE_BYTES] = "";
	struct family_file *file = NULL;
	int r = family_file_read(&file, "file", (const char *)data, size, message);

	CNRE_CHECK(r <= 0 && (r == 0) == (file != NULL));
	if (r < 0)
		CNRE_CHECK(strncmp(message, "file:", 5) == 0 && strchr(message, '\n') == NULL);
	else
		check_names(family_file_family(file));
	(void)family_file_close(file);
	return 0;
}
