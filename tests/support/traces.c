/* SPDX-License-Identifier: Apache-2.0 */
/* Small traces; see traces.h. */
#include "tests/support/traces.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void traces_make(struct traces *traces)
{
	memset(traces, 0, sizeof *traces);
	folder_make(&traces->folder);
	traces->load.temporary = traces->folder.path;
}

void traces_add_path(struct traces *traces, const char *path)
{
	(void)snprintf(traces->name[traces->count], sizeof traces->name[0], "%s", path);
	traces->path[traces->count] = traces->name[traces->count];
	traces->count++;
}

void traces_add(struct traces *traces, const char *name, const void *bytes, size_t count)
{
	char path[128];

	folder_write(&traces->folder, name, bytes, count);
	traces_add_path(traces, folder_path(&traces->folder, name, path, sizeof path));
}

void traces_add_text(struct traces *traces, const char *name, const char *text)
{
	traces_add(traces, name, text, strlen(text));
}

int traces_load(struct traces *traces)
{
	return sim_traces_open(&traces->trace, &traces->geometry, traces->path, traces->count, &traces->load,
			       traces->message, sizeof traces->message);
}

void traces_remove(struct traces *traces)
{
	sim_traces_close(traces->trace, traces->count, traces->geometry);
	folder_remove(&traces->folder);
}

int traces_refuses(enum sim_format format, const char *text, const char *expected, char ret_message[512])
{
	struct traces traces;
	int result;

	traces_make(&traces);
	traces.load.format = format;
	traces_add_text(&traces, "t", text);
	result = traces_load(&traces);
	memcpy(ret_message, traces.message, 512);
	if (result == 0)
		(void)snprintf(ret_message, 512, "it was accepted");
	traces_remove(&traces);
	return result == -EINVAL && strstr(ret_message, expected) != NULL && strchr(ret_message, '\n') == NULL;
}

void traces_describe(const struct traces *traces, uint32_t index, char *text, size_t text_bytes)
{
	const struct sim_trace *trace = &traces->trace[index];
	const struct sim_row *row;
	size_t at = 0;
	uint64_t i, k;

	text[0] = '\0';
	for (i = 0; i < trace->row_count && at < text_bytes; i++) {
		row = &trace->row[i];
		at += (size_t)snprintf(text + at, text_bytes - at, "%u %u/%u[%u]:", row->call,
				       traces->geometry->number[row->layer], row->token, row->tokens);
		for (k = 0; k < row->count && at < text_bytes; k++)
			at += (size_t)snprintf(text + at, text_bytes - at, "%s%u", k > 0 ? "," : "",
					       trace->object[row->first + k] -
						       traces->geometry->first_object[row->layer]);
		if (at < text_bytes)
			at += (size_t)snprintf(text + at, text_bytes - at, ";");
	}
}
