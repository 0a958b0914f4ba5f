/* SPDX-License-Identifier: Apache-2.0 */
/* Earlier uses; see prior.h. */
#include "tools/sim/prior.h"

#include "base/file.h"
#include "base/message.h"
#include "model/usage.h"
#include "tools/sim/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int sim_prior_is_usage(const char *path)
{
	static const char ending[] = "coli_usage";
	uint64_t bytes = 0;
	size_t length = strlen(path);
	char begin[1] = "";
	int64_t got;
	int fd = cnre_file_open(AT_FDCWD, path, &bytes);

	if (fd < 0)
		return fd;
	got = cnre_file_read(fd, begin, sizeof begin, 0);
	(void)close(fd);
	if (got < 0)
		return (int)got;
	return begin[0] == '-' || (length >= strlen(ending) && strcmp(path + length - strlen(ending), ending) == 0);
}

static uint32_t experts_max(const struct sim_geometry *geometry)
{
	uint32_t i, most = 0;

	for (i = 0; i < geometry->layer_count; i++)
		most = geometry->experts[i] > most ? geometry->experts[i] : most;
	return most;
}

/* Of the header, or where there is none, the geometry's. */
static int find_dimensions(const char *text, const struct sim_geometry *geometry, uint32_t *ret_layers,
			   uint32_t *ret_experts)
{
	uint32_t layers = geometry->number[geometry->layer_count - 1] + 1, experts = experts_max(geometry);
	unsigned long long a, b;
	char *end;

	if (strncmp(text, "-1 ", 3) == 0) {
		a = strtoull(text + 3, &end, 10);
		b = strtoull(end, NULL, 10);
		if (a < layers || b < experts || a > SIM_LAYERS_MAX || b > SIM_EXPERTS_MAX || a * b > SIM_OBJECTS_MAX)
			return -ESTALE;
		layers = (uint32_t)a;
		experts = (uint32_t)b;
	}
	*ret_layers = layers;
	*ret_experts = experts;
	return 0;
}

static void add_counts(uint32_t *count, const struct usage *usage, const struct sim_geometry *geometry)
{
	uint32_t i, k, uses, *to;

	for (i = 0; i < geometry->layer_count; i++)
		for (k = 0; k < geometry->experts[i]; k++) {
			uses = usage->count[(size_t)geometry->number[i] * usage->experts + k];
			to = &count[geometry->first_object[i] + k];
			*to = uses > UINT32_MAX - *to ? UINT32_MAX : *to + uses;
		}
}

static int read_usage(struct usage *usage, const char *path, const char *text, size_t bytes, char *message,
		      size_t message_bytes)
{
	char reason[256] = "";
	int result = usage_read_text(usage, text, bytes, reason, sizeof reason);

	return result < 0 ? cnre_message(message, message_bytes, -EINVAL, "%s: %s", path, reason) : 0;
}

int sim_prior_add_usage(uint32_t *count, const char *path, const struct sim_geometry *geometry, char *message,
			size_t message_bytes)
{
	uint32_t layers = 0, experts = 0;
	struct usage usage = {0};
	char *text = NULL;
	size_t bytes = 0;
	int result = sim_file_read(path, USAGE_BYTES_MAX, &text, &bytes, message, message_bytes);

	if (result < 0)
		return result;
	if (find_dimensions(text, geometry, &layers, &experts) < 0)
		result = cnre_message(message, message_bytes, -EINVAL,
				      "%s:1: a history of another model: the traces have %u layers of %u "
				      "experts: give this model's",
				      path, geometry->number[geometry->layer_count - 1] + 1, experts_max(geometry));
	else if (usage_open(&usage, layers, experts, 0) < 0)
		result = cnre_message(message, message_bytes, -ENOMEM, "%s: no memory for a history", path);
	else
		result = read_usage(&usage, path, text, bytes, message, message_bytes);
	if (result == 0)
		add_counts(count, &usage, geometry);
	usage_close(&usage);
	free(text);
	return result;
}
