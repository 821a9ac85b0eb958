"""The start page, a playground for the models; the API documentation; their scripts and styles."""

from fastapi import APIRouter, Request, Response

from bertwright.serving.page_files import PAGE_FILES, PAGE_HEADERS

router = APIRouter(include_in_schema=False)


async def page_file(request: Request) -> Response:
    """Return the file of the requested path."""
    file = PAGE_FILES[request.scope["route"].path]
    return Response(file.content, media_type=file.media_type, headers=PAGE_HEADERS)


for _path in PAGE_FILES:
    router.add_api_route(_path, page_file)
