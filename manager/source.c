/* SPDX-License-Identifier: Apache-2.0 */
/* The further directories of a model; see source.h. */
#include "manager/source.h"

#include "base/log.h"
#include "base/message.h"
#include "manager/settings.h"

#include <errno.h>
#include <string.h>

_Static_assert(SETTINGS_LIST_MAX <= CNRE_PLACES_FURTHER_MAX, "whatever is given fits");

struct model_source source_of(const struct settings *settings, const char *directory)
{
	return (struct model_source){.directory = directory,
				     .further = (const char *const *)settings->dir.item,
				     .further_count = settings->dir.count,
				     .family_file = settings->family};
}

static int check_listed(const struct cnre_places *places, uint32_t model_count, char *message, size_t message_bytes)
{
	const char *name = strrchr(places->place[0].path, '/') + 1;

	for (uint32_t i = 1; i < places->place_count; i++) {
		const struct cnre_place *place = &places->place[i];

		if (!place->is_named && place->shard_count + place->hidden_count > 0)
			return cnre_message(
				message, message_bytes, -EINVAL,
				"--dir %.150s: its shards may be of any of %u models: move those of this one into a folder in it called %.64s",
				place->path, model_count, name);
	}
	return 0;
}

int source_check(const struct model_source *source, uint32_t model_count, char *message, size_t message_bytes)
{
	struct cnre_places *places;
	int r;

	if (model_count < 2 || source->further_count == 0)
		return 0;
	r = cnre_places_open(&places, source->directory, source->further, source->further_count, message,
			     message_bytes);
	if (r < 0)
		return r;
	r = check_listed(places, model_count, message, message_bytes);
	(void)cnre_places_close(places);
	return r;
}

void source_say(const struct model_catalog *catalog)
{
	const struct cnre_place *place = catalog->places->place;

	for (uint32_t i = 1; i < catalog->places->place_count; i++) {
		cnre_log(CNRE_LOG_INFO, "dir: %.300s: %u shards of %s", place[i].path, place[i].shard_count,
			 catalog->name);
		if (place[i].hidden_count > 0)
			cnre_log(
				CNRE_LOG_WARNING,
				"dir: %.200s: %u shards are not used, since an earlier directory has those names; the first is %.100s, read from %.200s",
				place[i].path, place[i].hidden_count, place[i].hidden, place[place[i].hidden_by].path);
	}
}
