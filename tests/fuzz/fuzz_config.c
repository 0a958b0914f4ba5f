/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any bytes as the manager's config file. It is taken or refused with one line that names the file. */
#include "base/check.h"
#include "manager/settings.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void describe_all(const struct settings *settings)
{
	struct settings_line line;

	for (uint32_t i = 0; settings_describe(settings, i, &line); i++)
		CNRE_CHECK(strlen(line.value) < sizeof line.value && strlen(line.source) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct settings *settings;
	char message[256] = "";
	int r;

	if (settings_open_defaults(&settings) < 0)
		return 0;
	r = settings_read_text(settings, "file", (const char *)data, size, message, sizeof message);
	CNRE_CHECK(r <= 0);
	if (r < 0)
		CNRE_CHECK(strncmp(message, "file:", 5) == 0 && strchr(message, '\n') == NULL);
	describe_all(settings);
	(void)settings_close(settings);
	return 0;
}
